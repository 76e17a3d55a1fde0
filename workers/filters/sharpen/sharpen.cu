// Pillow's ImageEnhance.Sharpness: a blend of the image with its filter SMOOTH, which is (sum of 3
// × 3 + 4 · centre) / 13, rounded half up. No such quotient is near a half, so integers give what
// Pillow's floats give.
#include "kernels/headers/common.cuh"
#include "kernels/headers/pixel_pairs.cuh"

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

// Three rows: above the row that is made, this row, and below it.
template <int C> struct SharpenRows {
    const Item& item;
    float factor;
    PixelPairs<C> rows[3];
    u32 kept[PAIRS_WORDS];  // bits that stay as they are: alpha, and the outermost columns

    __device__ __forceinline__ void begin(int at)
    {
        int end = (item.width - 1) * C;
        for (int k = 0; k < 4 * PAIRS_WORDS; ++k) {
            bool keeps = at + k < C || at + k >= end || (C == 4 && k % 4 == 3);
            kept[k / 4] = (k % 4 ? kept[k / 4] : 0) | (keeps ? 255u << 8 * (k % 4) : 0);
        }
    }

    __device__ __forceinline__ void take(const PixelPairs<C>& pairs, int i) { rows[i % 3] = pairs; }

    __device__ __forceinline__ void make(int i, int y, u32* made) const
    {
        const PixelPairs<C>& middle = rows[(i + 2) % 3];
        PixelPairs<C> sums;
#pragma unroll
        for (int k = 0; k < PAIRS_WORDS + 2; ++k) {
            sums.even[k] = rows[0].even[k] + rows[1].even[k] + rows[2].even[k];
            sums.odd[k] = rows[0].odd[k] + rows[1].odd[k] + rows[2].odd[k];
        }
        u32 all = y == 0 || y == item.height - 1 ? ~0u : 0;
#pragma unroll
        for (int k = 0; k < PAIRS_WORDS; ++k) {
            u32 even = middle.even[k + 1], odd = middle.odd[k + 1];
            u32 evens = sums.even_before(k) + sums.even[k + 1] + sums.even_after(k) + 4 * even;
            u32 odds = sums.odd_before(k) + sums.odd[k + 1] + sums.odd_after(k) + 4 * odd;
            made[k] =
                __byte_perm(sharpened2(even, evens, factor), sharpened2(odd, odds, factor), 0x6240);
            made[k] = (middle.word(k) & (kept[k] | all)) | (made[k] & ~(kept[k] | all));
        }
    }
};

extern "C" __global__ void __launch_bounds__(256, 3)
    sharpen(const Item* items, const u32* starts, int n)
{
    int block;
    Item item = find_item(items, starts, n, block);
    float factor = *global<const float>(item.data);
    if (item.channels == 1) make_by_pairs<1>(item, block, SharpenRows<1>{item, factor});
    else if (item.channels == 3) make_by_pairs<3>(item, block, SharpenRows<3>{item, factor});
    else make_by_pairs<4>(item, block, SharpenRows<4>{item, factor});
}
LAUNCHED_BY_LINES(sharpen, PAIRS_BLOCK);
