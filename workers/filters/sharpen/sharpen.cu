// Pillow's ImageEnhance.Sharpness: a blend of the image with its filter SMOOTH, which is (sum of 3
// × 3 + 4 · centre) / 13, rounded half up. No such quotient is near a half, so integers give what
// Pillow's floats give.
#include "kernels/headers/common.cuh"
#include "kernels/headers/pixel_pairs.cuh"
#include "kernels/headers/staging.cuh"

// Return a sharpened sample, not yet cut to 0 … 255, in the lower half. `sums` holds 13 times the
// smooth sample. The quotient is computed with a half added: 1290555 is 2**24 / 13, and no quotient
// is nearer to a half than 1 / 26.
__device__ __forceinline__ u32 sharpened(u32 levels, u32 sums, u32 half, float factor)
{
    float sum = __uint_as_float(__byte_perm(sums, 0x4B000000, half));
    float smooth = __fmaf_rz(sum, 1290555.0f / 16777216, 8388608.0f - 645277.0f);
    float level = __uint_as_float(__byte_perm(levels, 0x4B000000, half));
    float mixed =
        __fadd_rn(__fmul_rn(__fsub_rn(level, smooth), factor), __fsub_rn(smooth, 8388608.0f));
    return __float_as_uint(__fadd_rz(mixed, 12582912.0f));
}

__device__ __forceinline__ u32 sharpened2(u32 levels, u32 sums, float factor)
{
    u32 low = sharpened(levels, sums, 0x7610, factor),
        high = sharpened(levels, sums, 0x7632, factor);
    return __vimin_s16x2_relu(__byte_perm(low, high, 0x5410), HALVES);
}

// Add three rows.
template <int C> __device__ __forceinline__ PixelPairs<C> summed(const PixelPairs<C>* rows)
{
    PixelPairs<C> sums;
#pragma unroll
    for (int k = 0; k < C + 2; ++k) {
        sums.even[k] = rows[0].even[k] + rows[1].even[k] + rows[2].even[k];
        sums.odd[k] = rows[0].odd[k] + rows[1].odd[k] + rows[2].odd[k];
    }
    return sums;
}

// Sharpen C words of a row; `rows` are the row above, this one and the one below.
template <int C>
__device__ __forceinline__ void sharpen_row(const PixelPairs<C>* rows, float factor, u32* made)
{
    PixelPairs<C> sums = summed(rows);
#pragma unroll
    for (int k = 0; k < C; ++k) {
        u32 even = rows[1].even[k + 1], odd = rows[1].odd[k + 1];
        u32 evens = sums.even_before(k) + sums.even[k + 1] + sums.even_after(k) + 4 * even;
        u32 odds = sums.odd_before(k) + sums.odd[k + 1] + sums.odd_after(k) + 4 * odd;
        made[k] =
            __byte_perm(sharpened2(even, evens, factor), sharpened2(odd, odds, factor), 0x6240);
    }
}

// Return which bits of a word of samples of row y stay as they are: alpha, and the image's
// outermost pixels.
template <int C> __device__ __forceinline__ u32 kept_bits(const Item& item, int sample, int y)
{
    if (y == 0 || y == item.height - 1) return ~0u;
    u32 kept = C == 4 ? 0xFF000000u : 0;
    int end = (item.width - 1) * C;
    for (int k = 0; k < 4; ++k)
        if (sample + k < C || sample + k >= end) kept |= 255u << 8 * k;
    return kept;
}

template <int C>
__device__ __forceinline__ void sharpen_tile(
    const Item& item, const Tile& tile, u32* words, u32* out)
{
    constexpr int PITCH = ThreadSlice<C>::PITCH;
    float factor = *global<const float>(item.data);
    bool inside = C != 4 && tile.x > 0 && tile.x + tile.width < item.width && tile.y > 0 &&
        tile.y + tile.height < item.height;
    stage_with_border<C>(item, tile, words);
    __syncthreads();
    ThreadSlice<C> share;
    const u32* from = share.staged(words);
    PixelPairs<C> rows[3];
    rows[1].load(from), rows[2].load(from + PITCH);
#pragma unroll
    for (int i = 0; i < PAIRS_ROWS; ++i) {
        rows[0] = rows[1], rows[1] = rows[2];
        rows[2].load(from + (i + 2) * PITCH);
        u32 made[C];
        sharpen_row(rows, factor, made);
        if (!inside)
            for (int k = 0; k < C; ++k) {
                u32 kept =
                    kept_bits<C>(item, tile.x * C + 4 * (share.word + k), tile.y + share.row + i);
                made[k] = (from[(i + 1) * PITCH + k] & kept) | (made[k] & ~kept);
            }
        for (int k = 0; k < C; ++k)
            out[(share.row + i) * ThreadSlice<C>::ACROSS * C + share.word + k] = made[k];
    }
    __syncthreads();
    store_tile<STAGED_WIDTH * C>(item, tile, (const u8*)out);
}

extern "C" __global__ void __launch_bounds__(256, 5)
    sharpen(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 words[(STAGED_HEIGHT + 2) * (STAGED_WIDTH + 8) / 4];
    __shared__ uint4 out[STAGED_HEIGHT * STAGED_WIDTH / 4 + 1];
    int block;
    Item item = find_item(items, starts, n, block);
    Tile tile = tile_of(item, block, STAGED_WIDTH, STAGED_HEIGHT);
    if (item.channels == 1) sharpen_tile<1>(item, tile, (u32*)words, (u32*)out);
    else if (item.channels == 3) sharpen_tile<3>(item, tile, (u32*)words, (u32*)out);
    else sharpen_tile<4>(item, tile, (u32*)words, (u32*)out);
}
LAUNCHED_BY_TILES(sharpen, STAGED_WIDTH, STAGED_HEIGHT);
