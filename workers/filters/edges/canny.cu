// Edges: J. Canny, "A computational approach to edge detection", TPAMI 1986, as OpenCV computes it,
// in integers: g = |Sobel x| + |Sobel y| of the (blurred) luma; a pixel is a candidate where g is
// above `low` and a maximum across the edge, and strong where g is above `high`; the result has all
// candidates that are connected (8 neighbours) to a strong one. Components are found by union and
// find with atomicMin (D. P. Playne, K. Hawick, "A new algorithm for parallel connected-component
// labelling on GPUs", IEEE TPDS 2018; union_find.cuh), first in tiles, then across them.
//
//   canny_edges: 64 × 16 pixels a block     canny_join_tiles: 4 tiles side by side a block
//   +------------------------------+        +------+------+------+------+
//   |  2 rows, 4 columns more      |        |======|======|======|======|  their first row, a
//   |  +------------------------+  |        ||    ||     ||     ||     ||  pixel a thread, and the
//   |  | pixel i: thread i % 256|  |        ||    ||     ||     ||     ||  first and last columns
//   |  +------------------------+  |        +------+------+------+------+  below: only there a
//   +------------------------------+        neighbour on the left or above lies in another tile
//
// Shared memory of canny_edges: lumas (bytes) and lengths g (16 bits) in rows of CANNY_PITCH, and
// `in_tile`, the parent of every pixel of the tile. Parents of the whole image lie in scratch.
#include "filters/arithmetic/grey_plane.cuh"
#include "filters/edges/spread.cuh"
#include "filters/separable/gaussian_columns.cuh"
#include "filters/separable/gaussian_rows.cuh"
#include "filters/separable/gaussian_rule.cuh"
#include "filters/separable/separable.cuh"
#include "filters/separable/separable_store.cuh"
#include "kernels/headers/common.cuh"
#include "kernels/headers/lines.cuh"
#include "kernels/headers/pixels.cuh"
#include "kernels/headers/union_find.cuh"

struct Canny {
    int low, high;  // a gradient above `low` may belong to an edge, one above `high` begins one
    int blurred;    // whether the lumas are blurred first
    int reserved[5];
    Gaussian weights;  // for small windows `struct Separable` lies here instead
};

constexpr int CANNY_WIDTH = 64, CANNY_HEIGHT = 16, CANNY_PITCH = CANNY_WIDTH + 8;

__device__ __forceinline__ const Canny& canny_of(const Item& item)
{
    return *global<const Canny>(item.data);
}

__device__ __forceinline__ u64 blurred_of(const Item& item)
{
    return item.channels == 1 ? item.dst : item.scratch + ((pixels_of(item) + 3) & ~3u);
}

__device__ __forceinline__ u32* parents_of(const Item& item)
{
    return global<u32>(item.channels == 1 ? item.scratch : item.scratch + 4ull * pixels_of(item));
}

extern "C" __global__ void __launch_bounds__(256)
    canny_blur_rows(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 planes[ROWS_SHARED / 16];
    __shared__ u32 weights[400];
    int block;
    Item item = with_weights(grey_of(find_item(items, starts, n, block)));
    Tile tile = tile_of(item, block, ROWS_WIDTH, ROWS_HEIGHT);
    const Gaussian& of = gaussian_of(item);
    for (int i = threadIdx.x; i < of.across; i += THREADS) weights[i] = of.weights[i];
    blur_rows<1, 1, u8, u32, u16>(item, tile, (u8*)planes, weights);
}
LAUNCHED_BY_TILES(canny_blur_rows, ROWS_WIDTH, ROWS_HEIGHT);

extern "C" __global__ void __launch_bounds__(256, 3)
    canny_blur_columns(const Item* items, const u32* starts, int n)
{
    __shared__ u32 weights[400];
    __shared__ uint4 out[COLUMNS_WIDTH * COLUMNS_HEIGHT / 16 + 1];
    int block;
    Item whole = find_item(items, starts, n, block), item = with_weights(grey_of(whole));
    item.dst = blurred_of(whole);
    Tile tile = tile_of(item, block, COLUMNS_WIDTH, COLUMNS_HEIGHT);
    const Gaussian& of = gaussian_of(item);
    for (int i = threadIdx.x; i < of.down; i += THREADS) weights[i] = of.weights[of.across + i];
    __syncthreads();
    blur_columns<false, false>(item, tile, weights, (u8*)out);
}
LAUNCHED_BY_TILES(canny_blur_columns, COLUMNS_WIDTH, COLUMNS_HEIGHT);

// Blur by a small window in one pass, from the image.
template <int REACH>
__device__ __forceinline__ void blur_grey(
    const Item* items, const u32* starts, int n, u32* plane, u32* buffer)
{
    int block;
    Item item = find_item(items, starts, n, block), grey = with_weights(item);
    Tile tile = separable_tile_of<REACH>(item, block);
    stage_grey<REACH>(item, tile, plane);
    grey.channels = 1, grey.dst = blurred_of(item);
    filter_grey<REACH, 1>(grey, tile, Blurred(), plane, buffer);
}

extern "C" __global__ void __launch_bounds__(256, 4)
    canny_blur_reach_8(const Item* items, const u32* starts, int n)
{
    __shared__ u32 plane[SeparableTile<8>::PLANE];
    __shared__ uint4 buffer[STORE_WORDS / 4];
    blur_grey<8>(items, starts, n, plane, (u32*)buffer);
}
LAUNCHED_BY_TILES(canny_blur_reach_8, SEPARABLE_WIDTH, SEPARABLE_HEIGHT_8);

extern "C" __global__ void __launch_bounds__(256, 3)
    canny_blur_reach_24(const Item* items, const u32* starts, int n)
{
    __shared__ u32 plane[SeparableTile<24>::PLANE];
    __shared__ uint4 buffer[STORE_WORDS / 4];
    blur_grey<24>(items, starts, n, plane, (u32*)buffer);
}
LAUNCHED_BY_TILES(canny_blur_reach_24, SEPARABLE_WIDTH, SEPARABLE_HEIGHT_24);

struct Gradient {
    int x, y;

    __device__ __forceinline__ int length() const { return abs(x) + abs(y); }
};

// Return the gradient at a place of the staged lumas.
__device__ __forceinline__ Gradient gradient_at(const u8* grey)
{
    const u8 *up = grey - CANNY_PITCH, *down = grey + CANNY_PITCH;
    return {up[1] + 2 * grey[1] + down[1] - up[-1] - 2 * grey[-1] - down[-1],
        down[-1] + 2 * down[0] + down[1] - up[-1] - 2 * up[0] - up[1]};
}

// Return whether a gradient is a maximum across the edge; `lengths` points at its own length, with
// those of its neighbours around it.
__device__ __forceinline__ bool largest(const Gradient& gradient, const u16* lengths)
{
    int own = lengths[0], x = abs(gradient.x), y = abs(gradient.y) << 15, slope = x * 13573;
    if (y < slope) return own > lengths[-1] && own >= lengths[1];
    if (y > slope + (x << 16)) return own > lengths[-CANNY_PITCH] && own >= lengths[CANNY_PITCH];
    int side = (gradient.x ^ gradient.y) < 0 ? -1 : 1;
    return own > lengths[-CANNY_PITCH - side] && own > lengths[CANNY_PITCH + side];
}

// Join the candidates within a tile; parents are pixels of the tile.
__device__ __forceinline__ void join_in_tile(u32* parents)
{
    for (int i = threadIdx.x; i < CANNY_HEIGHT * CANNY_WIDTH; i += THREADS) {
        if (parents[i] == NO_EDGE) continue;
        int x = i % CANNY_WIDTH, y = i / CANNY_WIDTH;
        auto is = [&](int dx, int dy) {
            return (u32)(x + dx) < CANNY_WIDTH && y + dy >= 0 &&
                parents[i + dy * CANNY_WIDTH + dx] != NO_EDGE;
        };
        union_neighbours(is, [&](int dx, int dy) {
            union_components(parents, parents[i], parents[i + dy * CANNY_WIDTH + dx]);
        });
    }
}

extern "C" __global__ void __launch_bounds__(256)
    canny_edges(const Item* items, const u32* starts, int n)
{
    __shared__ u32 words[(CANNY_HEIGHT + 4) * CANNY_PITCH / 4];
    __shared__ u16 lengths[(CANNY_HEIGHT + 4) * CANNY_PITCH];
    __shared__ u32 in_tile[CANNY_HEIGHT * CANNY_WIDTH];
    int block;
    Item item = find_item(items, starts, n, block), grey = grey_of(item);
    const Canny& of = canny_of(item);
    if (of.blurred) grey.src = blurred_of(item);
    Tile tile = tile_of(item, block, CANNY_WIDTH, CANNY_HEIGHT);
    const u8* lumas = (const u8*)words;
    for (int i = threadIdx.x; i < (CANNY_HEIGHT + 4) * (CANNY_PITCH / 4); i += THREADS) {
        int x = tile.x + i % (CANNY_PITCH / 4) * 4 - 4, y = tile.y + i / (CANNY_PITCH / 4) - 2;
        pixels4<1>(source_row(grey, y), item.width, x, words + i);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < (CANNY_HEIGHT + 2) * (CANNY_WIDTH + 2); i += THREADS) {
        int x = i % (CANNY_WIDTH + 2) - 1, y = i / (CANNY_WIDTH + 2) - 1;
        int at = (y + 2) * CANNY_PITCH + x + 4;
        bool inside = (u32)(tile.x + x) < (u32)item.width && (u32)(tile.y + y) < (u32)item.height;
        lengths[at] = (u16)(inside ? gradient_at(lumas + at).length() : 0);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < CANNY_HEIGHT * CANNY_WIDTH; i += THREADS) {
        int x = i % CANNY_WIDTH, y = i / CANNY_WIDTH, at = (y + 2) * CANNY_PITCH + x + 4;
        in_tile[i] = NO_EDGE;
        if (x >= tile.width || y >= tile.height) continue;
        if (lengths[at] > of.low && largest(gradient_at(lumas + at), lengths + at))
            in_tile[i] = lengths[at] > of.high ? 0 : i + 1;
    }
    __syncthreads();
    join_in_tile(in_tile);
    __syncthreads();
    u32* parents = parents_of(item);
    for (int i = threadIdx.x; i < CANNY_HEIGHT * CANNY_WIDTH; i += THREADS) {
        int x = i % CANNY_WIDTH, y = i / CANNY_WIDTH;
        if (x >= tile.width || y >= tile.height) continue;
        u32 first = in_tile[i] == NO_EDGE ? NO_EDGE : find_root(in_tile, in_tile[i]);
        if (first && first != NO_EDGE) {
            u32 row = tile.y + (first - 1) / CANNY_WIDTH;
            first = row * item.width + tile.x + (first - 1) % CANNY_WIDTH + 1;
        }
        parents[(u32)(tile.y + y) * item.width + tile.x + x] = first;
    }
}
LAUNCHED_BY_TILES(canny_edges, CANNY_WIDTH, CANNY_HEIGHT);

// Join a pixel to those of its neighbours that lie in other tiles.
__device__ __forceinline__ void join_across_tiles(const Item& item, int x, int y)
{
    if (x >= item.width || y >= item.height) return;
    u32 *parents = parents_of(item), *here = parents + (u32)y * item.width + x;
    if (*here == NO_EDGE) return;
    auto is = [&](int dx, int dy) {
        return (u32)(x + dx) < (u32)item.width && y + dy >= 0 &&
            here[dy * item.width + dx] != NO_EDGE;
    };
    union_neighbours(is, [&](int dx, int dy) {
        bool across = (x + dx) / CANNY_WIDTH != x / CANNY_WIDTH ||
            (y + dy) / CANNY_HEIGHT != y / CANNY_HEIGHT;
        if (across) union_components(parents, *here, here[dy * item.width + dx]);
    });
}

// Join four tiles a block to their neighbours: their first row, then the first and last columns
// below it.
extern "C" __global__ void __launch_bounds__(256)
    canny_join_tiles(const Item* items, const u32* starts, int n)
{
    int block;
    Item item = find_item(items, starts, n, block);
    Tile tile = tile_of(item, block, THREADS, CANNY_HEIGHT);
    join_across_tiles(item, tile.x + threadIdx.x, tile.y);
    int row = threadIdx.x % CANNY_HEIGHT, column = threadIdx.x / CANNY_HEIGHT;
    if (row == 0 || column >= 2 * (THREADS / CANNY_WIDTH)) return;
    join_across_tiles(item, tile.x + (column + 1) / 2 * CANNY_WIDTH - column % 2, tile.y + row);
}
LAUNCHED_BY_TILES(canny_join_tiles, THREADS, CANNY_HEIGHT);

template <int C>
__device__ __forceinline__ void paint_edges(const Item& item, int block, u32 pixels)
{
    u32 total = pixels_of(item), end = min(total, (block + 1) * pixels);
    u32* parents = parents_of(item);
    u8* dst = global<u8>(item.dst);
    for (u32 at = block * pixels + 4 * threadIdx.x; at < end; at += 4 * THREADS) {
        u32 tones = 0, words[C];
        for (u32 k = 0; k < min(4u, total - at); ++k)
            if (parents[at + k] != NO_EDGE && find_root(parents, parents[at + k]) == 0)
                tones |= 255u << 8 * k;
        grey_pixels4<C>(item, 0, 0, tones, words);
        for (int i = 0; i < C; ++i) {
            u8* to = dst + (u64)at * C + 4 * i;
            if (at + 4 <= total) *(u32*)to = words[i];
            else
                for (u32 k = 0; k < 4 && 4 * i + k < (total - at) * C; ++k)
                    to[k] = (u8)byte_of(words[i], k);
        }
    }
}

extern "C" __global__ void __launch_bounds__(256)
    canny_paint(const Item* items, const u32* starts, int n)
{
    int block;
    Item item = find_item(items, starts, n, block);
    if (item.channels == 1) paint_edges<1>(item, block, LINE);
    else paint_edges<3>(item, block, LINE / item.channels);
}
LAUNCHED_BY_LINES(canny_paint, LINE);
