// Correlation with 3 × 3 small integers, over a divisor: out = floor((sum + added) / divisor), cut
// to 0 … 255. Borders replicate. Two samples share a word, so that one multiplication serves both
// (pixel_pairs.cuh); sums have 16 bits. The tile and its threads are those of staging.cuh and
// `ThreadSlice`: 128 × 32 pixels, a thread makes the same four pixels of four rows.
#include "kernels/headers/common.cuh"
#include "kernels/headers/pixel_pairs.cuh"
#include "kernels/headers/staging.cuh"

struct CorrelateInt {
    u32 added;       // 2**15 more than what is added to a sum, in both halves
    u32 most;        // largest sum that is not cut off, in both halves
    u32 multiplier;  // 2**16 over the divisor, rounded up
    u32 weights[9];  // row by row, modulo 2**32
};

// Turn two sums into two levels, each in the third byte of a word. Sums in both halves lie between
// -2**15 and 2**15, so that with `added` neither borrows from the other.
__device__ __forceinline__ void divided(const CorrelateInt& of, u32 sums, u32* levels)
{
    u32 cut = __vimin_s16x2_relu(sums ^ 0x80008000, of.most);
    levels[0] = (cut & 0xFFFF) * of.multiplier, levels[1] = (cut >> 16) * of.multiplier;
}

template <int C>
__device__ __forceinline__ void correlate_int_rows(
    const CorrelateInt& of, const u32* words, u32 (*made)[C])
{
    constexpr int PITCH = ThreadSlice<C>::PITCH;
    u32 even[PAIRS_ROWS][C], odd[PAIRS_ROWS][C];
#pragma unroll
    for (int i = 0; i < PAIRS_ROWS * C; ++i) even[i / C][i % C] = odd[i / C][i % C] = of.added;
#pragma unroll
    for (int row = 0; row < PAIRS_ROWS + 2; ++row) {
        PixelPairs<C> pairs;
        pairs.load(words + row * PITCH);
#pragma unroll
        for (int y = max(row - 2, 0); y <= min(row, PAIRS_ROWS - 1); ++y) {
            const u32* weights = of.weights + 3 * (row - y);
#pragma unroll
            for (int k = 0; k < C; ++k) {
                even[y][k] += weights[0] * pairs.even_before(k) + weights[1] * pairs.even[k + 1] +
                    weights[2] * pairs.even_after(k);
                odd[y][k] += weights[0] * pairs.odd_before(k) + weights[1] * pairs.odd[k + 1] +
                    weights[2] * pairs.odd_after(k);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < PAIRS_ROWS * C; ++i) {
        u32 evens[2], odds[2];
        divided(of, even[i / C][i % C], evens);
        divided(of, odd[i / C][i % C], odds);
        u32 low = __byte_perm(evens[0], odds[0], 0x0062),
            high = __byte_perm(evens[1], odds[1], 0x0062);
        made[i / C][i % C] = __byte_perm(low, high, 0x5410);
    }
}

template <int C>
__device__ __forceinline__ void correlate_int_tile(
    const Item& item, const Tile& tile, u32* words, u32* out)
{
    const CorrelateInt of = *global<const CorrelateInt>(item.data);
    stage_with_border<C>(item, tile, words);
    __syncthreads();
    ThreadSlice<C> share;
    u32 made[PAIRS_ROWS][C];
    const u32* from = share.staged(words);
    correlate_int_rows<C>(of, from, made);
#pragma unroll
    for (int y = 0; y < PAIRS_ROWS; ++y)
#pragma unroll
        for (int k = 0; k < C; ++k) {
            if (C == 4)
                made[y][k] = (made[y][k] & 0xFFFFFF) |
                    (from[(y + 1) * ThreadSlice<C>::PITCH + k] & 0xFF000000);
            out[(share.row + y) * ThreadSlice<C>::ACROSS * C + share.word + k] = made[y][k];
        }
    __syncthreads();
    store_tile<STAGED_WIDTH * C>(item, tile, (const u8*)out);
}

extern "C" __global__ void __launch_bounds__(256, 4)
    correlate_3x3_int(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 words[(STAGED_HEIGHT + 2) * (STAGED_WIDTH + 8) / 4];
    __shared__ uint4 out[STAGED_HEIGHT * STAGED_WIDTH / 4 + 1];
    int block;
    Item item = find_item(items, starts, n, block);
    Tile tile = tile_of(item, block, STAGED_WIDTH, STAGED_HEIGHT);
    if (item.channels == 1) correlate_int_tile<1>(item, tile, (u32*)words, (u32*)out);
    else if (item.channels == 3) correlate_int_tile<3>(item, tile, (u32*)words, (u32*)out);
    else correlate_int_tile<4>(item, tile, (u32*)words, (u32*)out);
}
LAUNCHED_BY_TILES(correlate_3x3_int, STAGED_WIDTH, STAGED_HEIGHT);
