// Bilateral filter: C. Tomasi, R. Manduchi, "Bilateral filtering for gray and color images", ICCV
// 1998, with the weights, the round window and the order of sums of OpenCV's bilateralFilter:
//
//     out(p) = sum of s(|p - q|) · c(|I(p) - I(q)|) · I(q) / sum of s(|p - q|) · c(|I(p) - I(q)|)
//
// for all q within `radius` of p; the distance of colours is the sum of absolute differences over
// the channels. Borders are mirrored. OpenCV sums the last columns of a row in another order, so a
// level may differ by one.
//
//     radius        64 pixels       radius
//     +-------------------------------------+
//     |         surroundings                |  radius rows    A block makes 64 × 16 pixels. Row r
//     |      +-----------+-----------+      |                 and column x in shared memory are
//     |      |  warp 0   |  warp 1   |      |  4 rows         row tile.y + r - radius and column
//     |      |  warp 2   |  warp 3   |      |  4 rows         tile.x + x - radius of the image, a
//     |      |  warp 4   |  warp 5   |      |  4 rows         pixel a word, without alpha.
//     |      |  warp 6   |  warp 7   |      |  4 rows
//     |      +-----------+-----------+      |                 Lane l of a warp owns the pixels
//     |                                     |  radius rows    4 · (l % 8) … + 3 of row l / 8.
//     +-------------------------------------+
#include "filters/arithmetic/recolour.cuh"
#include "kernels/headers/borders.cuh"
#include "kernels/headers/common.cuh"
#include "kernels/headers/pixels.cuh"

// The largest radius; weights of a row of the window.
constexpr int MOST_REACH = 16, SPACE_PITCH = 2 * MOST_REACH + 1;

struct Bilateral {
    int radius;
    int reach[MOST_REACH + 1];  // half the width of the window's row that many rows away
    // Weights of the pixels of these rows, from left to right.
    float space[(MOST_REACH + 1) * SPACE_PITCH];
    float colour[766];  // weights by the sum of the channels' differences
};

constexpr int BILATERAL_WIDTH = CORRELATE_WIDTH, BILATERAL_HEIGHT = 16;
constexpr int BILATERAL_PITCH = BILATERAL_WIDTH + 2 * MOST_REACH + 1;  // 1 beyond a multiple of 4
constexpr int BILATERAL_ROWS = BILATERAL_HEIGHT + 2 * MOST_REACH;
constexpr int COPIES = 8;

struct BilateralShared {
    float colour[COPIES * 766];
    float space[(MOST_REACH + 1) * SPACE_PITCH];
    int reach[MOST_REACH + 1];
    __align__(16) u32 pixels[BILATERAL_ROWS * BILATERAL_PITCH];
};

// Load four pixels from x on, which may lie beyond the ends of the row, a word each, without alpha.
template <int C>
__device__ __forceinline__ void mirrored_colours4(const Item& item, int x, int y, u32* colours)
{
    y = mirrored(y, item.height);
    if (x < 0 || x + 4 > item.width) {
        for (int k = 0; k < 4; ++k) colours[k] = bordered_colour<C>(item, x + k, y, MIRROR);
        return;
    }
    u32 words[C];
    inner_pixels4<C>(source_row(item, y), x, words);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        if constexpr (C == 1) colours[k] = byte_of(words[0], k);
        else if constexpr (C == 4) colours[k] = words[k] & 0xFFFFFF;
        else if (k == 0) colours[k] = words[0] & 0xFFFFFF;
        else if (k == 3) colours[k] = words[2] >> 8;
        else colours[k] = __funnelshift_r(words[k - 1], words[k], 32 - 8 * k) & 0xFFFFFF;
    }
}

template <int C>
__device__ __forceinline__ void stage_mirrored(
    const Item& item, const Tile& tile, int radius, u32* pixels)
{
    u32 quads = (BILATERAL_WIDTH + 2 * radius + 3) / 4, n = quads * (BILATERAL_HEIGHT + 2 * radius);
    u32 inverse = 65536 / quads + 1;  // i / quads is exact for such small numbers
    for (u32 i = threadIdx.x; i < n; i += THREADS) {
        int row = i * inverse >> 16, x = (i - row * quads) * 4;
        u32 colours[4];
        mirrored_colours4<C>(item, tile.x + x - radius, tile.y + row - radius, colours);
        for (int k = 0; k < 4; ++k) pixels[row * BILATERAL_PITCH + x + k] = colours[k];
    }
}

// Stage the weights. Those of colours lie COPIES times side by side, so that fewer lanes of a warp
// meet in a bank. More copies, or fewer, were slower.
template <int C>
__device__ __forceinline__ void stage_weights(const Bilateral& of, BilateralShared& shared)
{
    for (int i = threadIdx.x; i < (C == 1 ? 256 : 766) * COPIES / 4; i += THREADS) {
        float weight = of.colour[4 * i / COPIES];
        ((float4*)shared.colour)[i] = make_float4(weight, weight, weight, weight);
    }
    for (int i = threadIdx.x; i < (of.radius + 1) * SPACE_PITCH; i += THREADS)
        shared.space[i] = of.space[i];
    if (threadIdx.x <= MOST_REACH) shared.reach[threadIdx.x] = of.reach[threadIdx.x];
}

// The copy of the colours' weights that a thread reads, addressed in bytes: an access
// takes one addition.
struct ColourWeights {
    const u8* own;

    __device__ __forceinline__ float of(u32 a, u32 b) const
    {
        return *(const float*)(own + __vsadu4(a, b) * (4 * COPIES));
    }
};

// The running sums of four pixels: weighted colours and weights.
template <int C> struct Smoothed {
    u32 centres[4];
    float sums[4][C] = {}, weights[4] = {};

    // Add a pixel of the window to the results from FIRST to LAST; result k weighs it by
    // `space[k]`.
    template <int FIRST, int LAST>
    __device__ __forceinline__ void add(u32 pixel, const float* space, const ColourWeights& colours)
    {
        float levels[C];
        for (int c = 0; c < C; ++c) levels[c] = level_of(pixel, c);
#pragma unroll
        for (int k = FIRST; k <= LAST; ++k) {
            float weight = __fmul_rn(space[k], colours.of(pixel, centres[k]));
            weights[k] = __fadd_rn(weights[k], weight);
            for (int c = 0; c < C; ++c) sums[k][c] = __fmaf_rn(levels[c], weight, sums[k][c]);
        }
    }
};

// Move the weights of a row on by one pixel: the next weight is that of the first of four results.
__device__ __forceinline__ void slide(float* space, float next)
{
    space[3] = space[2], space[2] = space[1], space[1] = space[0], space[0] = next;
}

// Add a row of the window that is wider than a pixel, from its first pixel and weight on. The
// columns at both ends lie in the windows of some of the four results only.
template <int C>
__device__ __forceinline__ void smooth_row(const u32* pixel, const float* weight, int reach,
    const ColourWeights& colours, Smoothed<C>& smoothed)
{
    float space[4] = {};
    slide(space, weight[0]), smoothed.template add<0, 0>(pixel[0], space, colours);
    slide(space, weight[1]), smoothed.template add<0, 1>(pixel[1], space, colours);
    slide(space, weight[2]), smoothed.template add<0, 2>(pixel[2], space, colours);
    pixel += 3, weight += 3;
#pragma unroll 1
    for (int pairs = reach - 1; pairs > 0; --pairs, pixel += 2, weight += 2) {
        slide(space, weight[0]), smoothed.template add<0, 3>(pixel[0], space, colours);
        slide(space, weight[1]), smoothed.template add<0, 3>(pixel[1], space, colours);
    }
    slide(space, 0), smoothed.template add<1, 3>(pixel[0], space, colours);
    slide(space, 0), smoothed.template add<2, 3>(pixel[1], space, colours);
    slide(space, 0), smoothed.template add<3, 3>(pixel[2], space, colours);
}

template <int C>
__device__ __forceinline__ void smooth_ends(
    const u32* pixel, float weight, const ColourWeights& colours, Smoothed<C>& smoothed)
{
    float space[4] = {weight, weight, weight, weight};
    smoothed.template add<0, 0>(pixel[0], space, colours);
    smoothed.template add<1, 1>(pixel[1], space, colours);
    smoothed.template add<2, 2>(pixel[2], space, colours);
    smoothed.template add<3, 3>(pixel[3], space, colours);
}

template <int C>
__device__ __forceinline__ void bilateral_four(
    int radius, const BilateralShared& shared, int x, int y, u32* made)
{
    ColourWeights colours = {(const u8*)(shared.colour + threadIdx.x % COPIES)};
    const u32* row = shared.pixels + y * BILATERAL_PITCH + x + radius;
    const u32* middle = row + radius * BILATERAL_PITCH;
    Smoothed<C> smoothed = {{middle[0], middle[1], middle[2], middle[3]}};
#pragma unroll 1
    for (int dy = -radius; dy <= radius; ++dy, row += BILATERAL_PITCH) {
        const float* weights = shared.space + abs(dy) * SPACE_PITCH + MOST_REACH;
        int reach = shared.reach[abs(dy)];
        if (reach) smooth_row<C>(row - reach, weights - reach, reach, colours, smoothed);
        else smooth_ends<C>(row, weights[0], colours, smoothed);
    }
    for (int k = 0; k < 4; ++k) {
        float share = __fdiv_rn(1.0f, smoothed.weights[k]);
        for (int c = 0; c < C; ++c) {
            float sum = smoothed.sums[k][c];
            float level = C == 1 ? __fdiv_rn(sum, smoothed.weights[k]) : __fmul_rn(sum, share);
            made[C * k + c] = __float2int_rn(level);
        }
    }
}

// Compute a tile. With alpha C is 4, and the template's C for colours is 3. A warp has 8 × 4 groups
// of four pixels, no two of which begin in the same bank.
template <int C>
__device__ __forceinline__ void bilateral_tile(
    const Item& item, const Tile& tile, const Bilateral& of, BilateralShared& shared)
{
    constexpr int COLOURS = C == 1 ? 1 : 3;
    stage_weights<COLOURS>(of, shared);
    stage_mirrored<C>(item, tile, of.radius, shared.pixels);
    __syncthreads();
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int x = warp % 2 * 32 + lane % 8 * 4, y = warp / 2 * 4 + lane / 8;
    u32 made[4 * COLOURS];
    bilateral_four<COLOURS>(of.radius, shared, x, y, made);
    __syncthreads();
    recoloured4<C>(item, tile, x, y, made, shared.pixels);
    __syncthreads();
    store_tile<BILATERAL_WIDTH * C>(item, tile, (const u8*)shared.pixels);
}

extern "C" __global__ void __launch_bounds__(256, 4)
    bilateral(const Item* items, const u32* starts, int n)
{
    __shared__ __align__(16) BilateralShared shared;
    int block;
    Item item = find_item(items, starts, n, block);
    const Bilateral& of = *global<const Bilateral>(item.data);
    Tile tile = tile_of(item, block, BILATERAL_WIDTH, BILATERAL_HEIGHT);
    if (item.channels == 1) bilateral_tile<1>(item, tile, of, shared);
    else if (item.channels == 3) bilateral_tile<3>(item, tile, of, shared);
    else bilateral_tile<4>(item, tile, of, shared);
}
LAUNCHED_BY_TILES(bilateral, BILATERAL_WIDTH, BILATERAL_HEIGHT);
