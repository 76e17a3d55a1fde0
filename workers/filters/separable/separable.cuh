// A linear filter with separable weights, rows and columns in one pass, on the tensor cores:
//
//     out = rule(sum over y of down[y] · (two bytes of the sum over x of across[x] · sample))
//
// where a window reaches at most REACH samples to either side and a rule, such as `Blurred` of
// gaussian_rule.cuh, states which bytes are kept, rounds, and makes a level of a sum. A correlation
// is a product with a band matrix (a Toeplitz matrix of the weights). Weights of several bytes are
// as many products, joined by powers of 256, so that all sums are exact integers.
//
//      REACH       128 columns = 8 warps of 16        REACH
//     +-----+----+----+----+----+----+----+----+----+-----+
//     |     |    |    |    |    |    |    |    |    |     |  REACH rows
//     |     | w0 | w1 | w2 | w3 | w4 | w5 | w6 | w7 |     |  HEIGHT rows, 16 at a time
//     |     |    |    |    |    |    |    |    |    |     |  REACH rows
//     +-----+----+----+----+----+----+----+----+----+-----+
//
// A warp goes down its 16 columns. It sums 16 rows at a time along x and keeps the last SPAN such
// sums in registers, two bytes each, as the products down columns need them. Shared memory has a
// plane of bytes for each colour; `row_place` reorders the rows of every sixteen, so that four rows
// whose sums one lane gets become one word of its next factor. Lane 4 · g + t owns row g and g + 8
// and the four pixels from 4 · t on of a 16 × 16 result.
#pragma once
#include "kernels/headers/common.cuh"
#include "kernels/headers/luma.cuh"
#include "kernels/headers/mma.cuh"
#include "kernels/headers/pixels.cuh"

struct Separable {
    u32 parameters[4];  // parameters of the rule
    uint4 weights[1];   // weights of rows, then of columns: [32 samples][byte of a weight][lane]
};

constexpr int SEPARABLE_WIDTH = 128;  // pixels a tile, for both reaches
constexpr int SEPARABLE_HEIGHT_8 = 64, SEPARABLE_HEIGHT_24 = 32;

template <int REACH> struct SeparableTile {
    static constexpr int WIDTH = SEPARABLE_WIDTH,
                         HEIGHT = REACH == 8 ? SEPARABLE_HEIGHT_8 : SEPARABLE_HEIGHT_24;
    static constexpr int STEPS = (REACH + 8) / 16,
                         SPAN = 2 * STEPS;  // 32 samples, or 16 rows, a window
    static constexpr int PITCH = WIDTH / 4 + REACH / 2, DOWN = HEIGHT + 2 * REACH;  // words, rows
    static constexpr int PLANE = PITCH * DOWN;                                      // words
};

constexpr int STORE_WORDS = 1024;  // words of results: eight rows of 16 pixels of every warp

__device__ __forceinline__ const Separable& separable_of(const Item& item)
{
    return *global<const Separable>(item.data);
}

// Return where row y lies in a plane, reordered within every sixteen rows: the four rows whose sums
// one lane computes are four that follow each other.
__device__ __forceinline__ int row_place(int y)
{
    return (y & ~15) | (y & 2) << 2 | (y >> 1 & 6) | (y & 1);
}

// Stage PLANES colours of the tile and of its surroundings, or the luma of C channels as the only
// plane. This function is for tiles at an end of their rows or with rows of no whole words; it is
// separate for the reason given at `replicated4`.
template <int REACH, int C, int PLANES>
static __device__ __noinline__ void stage_ends(const Item& item, const Tile& tile, u32* planes)
{
    using F = SeparableTile<REACH>;
    for (int i = threadIdx.x; i < (tile.height + 2 * REACH) * F::PITCH; i += THREADS) {
        int row = i / F::PITCH, word = i % F::PITCH, x = tile.x + 4 * word - REACH;
        const u8* line = source_row(item, tile.y + row - REACH);
        u32 plane[C];
        if constexpr (PLANES == 1) plane[0] = row_lumas4<C>(line, item.width, x);
        else pixels4<C>(line, item.width, x, plane);
        for (int c = 0; c < PLANES; ++c)
            planes[c * F::PLANE + row_place(row) * F::PITCH + word] = plane[c];
    }
}

// Stage ACROSS words of every row from word FIRST on, as far as rows have them.
template <int REACH, int C, int PLANES, int FIRST, int ACROSS>
__device__ __forceinline__ void stage_inside(const Item& item, const Tile& tile, u32* planes)
{
    using F = SeparableTile<REACH>;
    constexpr int STEP = THREADS / ACROSS;
    int first = threadIdx.x / ACROSS, word = FIRST + threadIdx.x % ACROSS;
    int offset = (tile.x + 4 * word - REACH) * C;
    if (word >= F::PITCH) return;
#pragma unroll
    for (int row = 0; row < F::DOWN; row += STEP) {
        if (row + STEP > F::DOWN && first + row >= F::DOWN) return;
        const u32* from = (const u32*)(source_row(item, tile.y + first + row - REACH) + offset);
        u32* to = planes + (row_place(first + row % 16) + row / 16 * 16) * F::PITCH + word;
        u32 plane[C], words[C];
        for (int c = 0; c < C; ++c) words[c] = from[c];
        if constexpr (PLANES == 1) plane[0] = lumas4<C>(words);
        else deinterleave<C>(words, plane);
        for (int c = 0; c < PLANES; ++c) to[c * F::PLANE] = plane[c];
    }
}

template <int REACH, int C, int PLANES>
__device__ __forceinline__ void stage_planes_of(const Item& item, const Tile& tile, u32* planes)
{
    using F = SeparableTile<REACH>;
    if (tile.x < REACH || tile.x + F::WIDTH + REACH > item.width || item.width * C % 4) {
        stage_ends<REACH, C, PLANES>(item, tile, planes);
    } else {
        stage_inside<REACH, C, PLANES, 0, 32>(item, tile, planes);
        stage_inside<REACH, C, PLANES, 32, REACH == 8 ? 4 : 16>(item, tile, planes);
    }
    __syncthreads();
}

template <int REACH>
__device__ __forceinline__ void stage_grey(const Item& item, const Tile& tile, u32* plane)
{
    if (item.channels == 1) stage_planes_of<REACH, 1, 1>(item, tile, plane);
    else if (item.channels == 3) stage_planes_of<REACH, 3, 1>(item, tile, plane);
    else stage_planes_of<REACH, 4, 1>(item, tile, plane);
}

template <int N> __device__ __forceinline__ void load_weights(const uint4* from, uint4* weights)
{
#pragma unroll
    for (int i = 0; i < N; ++i) weights[i] = from[32 * i + threadIdx.x % 32];
}

// Join the sums of products with every byte of the weights to sums of products with the weights.
template <int BYTES> __device__ __forceinline__ void join_parts(const u32 (*parts)[4], u32* sums)
{
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        sums[i] = parts[BYTES - 1][i];
#pragma unroll
        for (int b = BYTES - 2; b >= 0; --b) sums[i] = 256 * sums[i] + parts[b][i];
    }
}

template <int N> __device__ __forceinline__ void begin_parts(u32 first, u32 (*parts)[4])
{
#pragma unroll
    for (int b = 0; b < N; ++b)
#pragma unroll
        for (int i = 0; i < 4; ++i) parts[b][i] = b ? 0 : first;
}

// The part of a lane of 16 × 16 sums along rows: columns g and g + 8, four rows of each, the low
// and the high bytes apart.
struct RowSums {
    u32 low[2], high[2];
};

template <int REACH, class Rule>
__device__ __forceinline__ RowSums sum_rows(const u32* plane, const uint4* weights)
{
    using F = SeparableTile<REACH>;
    u32 sums[2][4];
#pragma unroll
    for (int half = 0; half < 2; ++half, plane += 8 * F::PITCH) {
        u32 parts[Rule::ACROSS][4];
        begin_parts<Rule::ACROSS>(Rule::HALF, parts);
#pragma unroll
        for (int step = 0; step < F::STEPS; ++step) {
            u32 right[2] = {plane[8 * step], plane[8 * step + 4]};
#pragma unroll
            for (int b = 0; b < Rule::ACROSS; ++b)
                multiply_add(weights[step * Rule::ACROSS + b], right, parts[b]);
        }
        join_parts<Rule::ACROSS>(parts, sums[half]);
    }
    RowSums made;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        u32 a = __byte_perm(sums[0][2 * i], sums[0][2 * i + 1], Rule::KEPT);
        u32 b = __byte_perm(sums[1][2 * i], sums[1][2 * i + 1], Rule::KEPT);
        made.low[i] = __byte_perm(a, b, 0x5410), made.high[i] = __byte_perm(a, b, 0x7632);
    }
    return made;
}

// Compute 16 × 16 sums down columns; a lane gets four pixels of row g and four of row g + 8, half
// by half.
template <int REACH, class Rule>
__device__ __forceinline__ void sum_columns(
    u32 first, const RowSums* rows, const uint4* weights, u32 (*sums)[4])
{
    using F = SeparableTile<REACH>;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        u32 parts[Rule::DOWN + 1][4];
        begin_parts<Rule::DOWN + 1>(first, parts);
#pragma unroll
        for (int step = 0; step < F::STEPS; ++step) {
            const RowSums* at = rows + 2 * step;
            u32 low[2] = {at[0].low[half], at[1].low[half]},
                high[2] = {at[0].high[half], at[1].high[half]};
#pragma unroll
            for (int b = 0; b < Rule::DOWN; ++b) {
                multiply_add(weights[step * Rule::DOWN + b], low, parts[b]);
                multiply_add(weights[step * Rule::DOWN + b], high, parts[b + 1]);
            }
        }
        join_parts<Rule::DOWN + 1>(parts, sums[half]);
    }
}

// Filter the staged planes. `store(x, y, words)` gets the lane's four pixels, x and y within the
// tile, as a word of each plane. All lanes of a warp must call it together.
template <int REACH, int PLANES, class Rule, class Store>
__device__ __forceinline__ void filter_planes(
    const Item& item, const Tile& tile, const Rule& rule, const u32* planes, const Store& store)
{
    using F = SeparableTile<REACH>;
    constexpr int ACROSS = F::STEPS * Rule::ACROSS, DOWN = F::STEPS * Rule::DOWN;
    int strip = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    if (16 * strip >= tile.width) return;
    uint4 across[ACROSS], down[DOWN];
    load_weights<ACROSS>(separable_of(item).weights, across);
    load_weights<DOWN>(separable_of(item).weights + 32 * ACROSS, down);
    RowSums rows[PLANES][F::SPAN];
    planes += 4 * strip + t;
#pragma unroll 1
    for (int y = 16 - 16 * F::SPAN; y < tile.height; y += 16) {
#pragma unroll
        for (int c = 0; c < PLANES; ++c) {
#pragma unroll
            for (int k = 0; k < F::SPAN - 1; ++k) rows[c][k] = rows[c][k + 1];
            const u32* from = planes + c * F::PLANE + (y + 16 * F::SPAN - 16 + g) * F::PITCH;
            rows[c][F::SPAN - 1] = sum_rows<REACH, Rule>(from, across);
        }
        if (y < 0) continue;
        u32 made[2][PLANES];
#pragma unroll
        for (int c = 0; c < PLANES; ++c) {
            u32 sums[2][4];
            sum_columns<REACH, Rule>(rule.half(), rows[c], down, sums);
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                u32 four[4] = {
                    sums[0][2 * i], sums[0][2 * i + 1], sums[1][2 * i], sums[1][2 * i + 1]};
                made[i][c] = rule(four,
                    planes[c * F::PLANE + (y + row_place(8 * i + g + REACH)) * F::PITCH +
                        REACH / 4]);
            }
        }
        for (int i = 0; i < 2; ++i) store(16 * strip + 4 * t, y + 8 * i + g, made[i]);
    }
}
