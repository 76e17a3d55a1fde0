// Correlation with at most 5 × 5 weights in single precision: out = floor(sum of weight · sample +
// offset), cut to 0 … 255, `offset` with the half that rounds. With `ordered`, products are rounded
// and rows are summed for themselves, from the lowest up, which is Pillow's order; else
// multiplications and additions are fused.
//
//    4       128 pixels        4     A block makes 128 × 32 pixels. `staged` holds a plane of bytes
//    +---------------------------+   for every colour: REACH rows more on top and bottom, a word
//    |   REACH rows              |   (4 samples) more on either side. Thread t owns the word t % 32
//    | +-----------------------+ |   and the SMALL_ROWS = 4 rows from 4 · (t / 32) on, of one plane
//    | | w0 | w1 | … | w31     | |   after the other. `planes` holds the results until they are
//    | +-----------------------+ |   interleaved again.
//    +---------------------------+
#include "kernels/headers/borders.cuh"
#include "kernels/headers/common.cuh"
#include "kernels/headers/pixels.cuh"

struct CorrelateSmall {
    float offset;  // the offset plus a half
    int border;    // one of Border
    int ordered;   // whether products are rounded and rows summed for themselves, as Pillow does
    int reserved;
    float weights[25];  // the lowest row first
};

constexpr int SMALL_WIDTH = 128, SMALL_HEIGHT = 32, SMALL_ROWS = 4;
constexpr int SMALL_PITCH = SMALL_WIDTH / 4 + 2, SMALL_GROUPS = SMALL_WIDTH / 4 * SMALL_HEIGHT;

// Return the words of a plane with `reach` rows more on top and bottom and four samples on either
// side.
__device__ constexpr int plane_words(int reach) { return (SMALL_HEIGHT + 2 * reach) * SMALL_PITCH; }

// Load a channel of the pixels x … x+3, of which some lie beyond the image's ends. The function is
// separate for the reason given at `replicated4`.
static __device__ __noinline__ u32 bordered_plane4(
    const Item& item, int x, int y, int channel, int border)
{
    u32 word = 0;
    int row = bordered(y, item.height, border);
    for (int k = 0; k < 4; ++k) {
        int column = bordered(x + k, item.width, border);
        if (row < 0 || column < 0) continue;
        word |= (u32)source_row(item, row)[column * item.channels + channel] << (8 * k);
    }
    return word;
}

// Stage the planes of a tile that lies at an end of the image or whose words are not aligned.
template <int C, int REACH>
static __device__ __noinline__ void stage_planes_ends(
    const Item& item, const Tile& tile, int border, u32* staged)
{
    constexpr int COLOURS = C == 1 ? 1 : 3, WORDS = plane_words(REACH);
    for (int i = threadIdx.x; i < (tile.height + 2 * REACH) * SMALL_PITCH; i += THREADS) {
        int x = tile.x + i % SMALL_PITCH * 4 - 4, y = tile.y + i / SMALL_PITCH - REACH;
        u32 plane[C];
        if (x >= tile.x + tile.width + REACH) continue;
        if (y >= 0 && y < item.height && x >= 0 && x + 4 <= item.width) {
            u32 words[C];
            inner_pixels4<C>(source_row(item, y), x, words);
            deinterleave<C>(words, plane);
        } else {
            for (int c = 0; c < COLOURS; ++c) plane[c] = bordered_plane4(item, x, y, c, border);
        }
        for (int c = 0; c < COLOURS; ++c) staged[c * WORDS + i] = plane[c];
    }
}

// Stage ACROSS words of every row from word FIRST on, for all other tiles.
template <int C, int REACH, int FIRST, int ACROSS>
__device__ __forceinline__ void stage_planes_inside(const Item& item, const Tile& tile, u32* staged)
{
    constexpr int COLOURS = C == 1 ? 1 : 3, STEP = THREADS / ACROSS,
                  ROWS = SMALL_HEIGHT + 2 * REACH;
    int first = threadIdx.x / ACROSS, word = FIRST + threadIdx.x % ACROSS,
        offset = (tile.x + 4 * word - 4) * C;
    staged += first * SMALL_PITCH + word;
#pragma unroll
    for (int row = 0; row < ROWS; row += STEP) {
        if (row + STEP > ROWS && first + row >= ROWS) return;
        const u32* from = (const u32*)(source_row(item, tile.y + first + row - REACH) + offset);
        u32 plane[C], words[C];
        for (int c = 0; c < C; ++c) words[c] = from[c];
        deinterleave<C>(words, plane);
        for (int c = 0; c < COLOURS; ++c)
            staged[c * plane_words(REACH) + row * SMALL_PITCH] = plane[c];
    }
}

template <int C, int REACH>
__device__ __forceinline__ void stage_bordered_planes(
    const Item& item, const Tile& tile, int border, u32* staged)
{
    bool within = tile.x >= 4 && tile.x + SMALL_WIDTH + 4 <= item.width && tile.y >= REACH &&
        tile.y + SMALL_HEIGHT + REACH <= item.height && item.width * C % 4 == 0;
    if (!within) {
        stage_planes_ends<C, REACH>(item, tile, border, staged);
        return;
    }
    stage_planes_inside<C, REACH, 0, 32>(item, tile, staged);
    stage_planes_inside<C, REACH, 32, 2>(item, tile, staged);
}

// Compute SMALL_ROWS rows of four samples; `words` points at the word before those of the first row
// needed. Rows are taken from the lowest up, so that sums meet them in Pillow's order.
template <int REACH, bool ORDERED>
__device__ __forceinline__ void correlate_rows(
    const float* weights, float offset, const u32* words, u32* made)
{
    constexpr int SIZE = 2 * REACH + 1;
    float sums[SMALL_ROWS][4];
    for (int i = 0; i < SMALL_ROWS * 4; ++i) sums[i / 4][i % 4] = offset;
#pragma unroll
    for (int below = SMALL_ROWS + 2 * REACH - 1; below >= 0; --below) {
        const u32* line = words + below * SMALL_PITCH;
        float levels[3 + SIZE];
#pragma unroll
        for (int i = 0; i < 3 + SIZE; ++i) {
            int at = 4 - REACH + i;
            levels[i] = level_of(line[at / 4], at % 4);
        }
#pragma unroll
        for (int row = 0; row < SIZE; ++row) {
            int y = below - 2 * REACH + row;
            if (y < 0 || y >= SMALL_ROWS) continue;
            const float* of = weights + row * SIZE;
            for (int k = 0; k < 4; ++k) {
                float along =
                    ORDERED ? __fmul_rn(levels[k], of[0]) : __fmaf_rn(levels[k], of[0], sums[y][k]);
                for (int x = 1; x < SIZE; ++x) {
                    if (ORDERED) along = __fadd_rn(along, __fmul_rn(levels[k + x], of[x]));
                    else along = __fmaf_rn(levels[k + x], of[x], along);
                }
                sums[y][k] = ORDERED ? __fadd_rn(sums[y][k], along) : along;
            }
        }
    }
    for (int y = 0; y < SMALL_ROWS; ++y) {
        u32 level[4];
        for (int k = 0; k < 4; ++k)
            level[k] =
                __float_as_uint(__fadd_rz(fminf(fmaxf(sums[y][k], 0.0f), 255.0f), 8388608.0f));
        made[y] = packed(level[0], level[1], level[2], level[3]);
    }
}

// Compute the planes of results from the staged planes of `colours` colours.
template <int REACH, bool ORDERED>
__device__ __forceinline__ void sum_planes(
    const CorrelateSmall& of, int colours, const u32* staged, u32* planes)
{
    constexpr int SIZE = 2 * REACH + 1, ACROSS = SMALL_WIDTH / 4;
    int group = threadIdx.x % ACROSS, first = threadIdx.x / ACROSS * SMALL_ROWS;
    float weights[SIZE * SIZE], offset = of.offset;
    for (int i = 0; i < SIZE * SIZE; ++i) weights[i] = of.weights[i];
#pragma unroll 1
    for (int plane = 0; plane < colours; ++plane) {
        u32 made[SMALL_ROWS];
        const u32* words = staged + plane * plane_words(REACH) + first * SMALL_PITCH + group;
        correlate_rows<REACH, ORDERED>(weights, offset, words, made);
        for (int i = 0; i < SMALL_ROWS; ++i)
            planes[plane * SMALL_GROUPS + (first + i) * ACROSS + group] = made[i];
    }
}

// Interleave planes to pixels with the image's own alpha.
template <int C>
__device__ __forceinline__ void join_planes(
    const Item& item, const Tile& tile, const u32* planes, u32* out)
{
    for (int i = threadIdx.x; i < SMALL_GROUPS; i += THREADS) {
        int x = i % (SMALL_WIDTH / 4) * 4, y = i / (SMALL_WIDTH / 4);
        if (x >= tile.width || y >= tile.height) continue;
        u32 plane[C];
        if constexpr (C == 4)
            pixels4<C>(source_row(item, tile.y + y), item.width, tile.x + x, plane);
        for (int c = 0; c < min(C, 3); ++c) plane[c] = planes[c * SMALL_GROUPS + i];
        interleave<C>(plane, out + i * C);
    }
}

template <int REACH>
__device__ __forceinline__ void correlate_small_tile(
    const Item* items, const u32* starts, int n, u32* staged, u32* planes)
{
    int block;
    Item item = find_item(items, starts, n, block);
    const CorrelateSmall& of = *global<const CorrelateSmall>(item.data);
    Tile tile = tile_of(item, block, SMALL_WIDTH, SMALL_HEIGHT);
    if (item.channels == 1) stage_bordered_planes<1, REACH>(item, tile, of.border, staged);
    else if (item.channels == 3) stage_bordered_planes<3, REACH>(item, tile, of.border, staged);
    else stage_bordered_planes<4, REACH>(item, tile, of.border, staged);
    __syncthreads();
    int colours = min(item.channels, 3);
    if (of.ordered) sum_planes<REACH, true>(of, colours, staged, planes);
    else sum_planes<REACH, false>(of, colours, staged, planes);
    __syncthreads();
    if (item.channels == 1) join_planes<1>(item, tile, planes, staged);
    else if (item.channels == 3) join_planes<3>(item, tile, planes, staged);
    else join_planes<4>(item, tile, planes, staged);
    __syncthreads();
    store_tile_of<SMALL_WIDTH>(item, tile, (const u8*)staged);
}

extern "C" __global__ void __launch_bounds__(256, 4)
    correlate_3x3_float(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 staged[SMALL_GROUPS + 1], planes[3 * SMALL_GROUPS / 4];
    correlate_small_tile<1>(items, starts, n, (u32*)staged, (u32*)planes);
}
LAUNCHED_BY_TILES(correlate_3x3_float, SMALL_WIDTH, SMALL_HEIGHT);

extern "C" __global__ void __launch_bounds__(256, 3)
    correlate_5x5_float(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 staged[SMALL_GROUPS + 1], planes[3 * SMALL_GROUPS / 4];
    correlate_small_tile<2>(items, starts, n, (u32*)staged, (u32*)planes);
}
LAUNCHED_BY_TILES(correlate_5x5_float, SMALL_WIDTH, SMALL_HEIGHT);
