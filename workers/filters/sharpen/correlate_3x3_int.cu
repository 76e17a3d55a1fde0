// Correlation with 3 × 3 small integers, over a divisor: out = floor((sum + added) / divisor), cut
// to 0 … 255. Borders replicate. Two samples share a word, so that one multiplication serves both
// (pixel_pairs.cuh); sums have 16 bits.
#include "kernels/headers/common.cuh"
#include "kernels/headers/pixel_pairs.cuh"

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

// The sums of three rows under way: a row of samples adds to each of them by a row of weights.
template <int C> struct CorrelateRows {
    const CorrelateInt& of;
    u32 even[3][PAIRS_WORDS], odd[3][PAIRS_WORDS], alpha[2][PAIRS_WORDS];

    __device__ __forceinline__ void begin(int) {}

    __device__ __forceinline__ void take(const PixelPairs<C>& pairs, int i)
    {
#pragma unroll
        for (int row = 0; row < 3; ++row) {
            const u32* weights = of.weights + 3 * row;
            u32 *evens = even[(i + 3 - row) % 3], *odds = odd[(i + 3 - row) % 3];
#pragma unroll
            for (int k = 0; k < PAIRS_WORDS; ++k) {
                evens[k] = (row ? evens[k] : of.added) + weights[0] * pairs.even_before(k) +
                    weights[1] * pairs.even[k + 1] + weights[2] * pairs.even_after(k);
                odds[k] = (row ? odds[k] : of.added) + weights[0] * pairs.odd_before(k) +
                    weights[1] * pairs.odd[k + 1] + weights[2] * pairs.odd_after(k);
            }
        }
        for (int k = 0; k < PAIRS_WORDS; ++k) alpha[i % 2][k] = pairs.word(k) & 0xFF000000;
    }

    __device__ __forceinline__ void make(int i, int, u32* words) const
    {
#pragma unroll
        for (int k = 0; k < PAIRS_WORDS; ++k) {
            u32 evens[2], odds[2];
            divided(of, even[(i + 1) % 3][k], evens);
            divided(of, odd[(i + 1) % 3][k], odds);
            u32 low = __byte_perm(evens[0], odds[0], 0x0062),
                high = __byte_perm(evens[1], odds[1], 0x0062);
            words[k] = __byte_perm(low, high, 0x5410);
            if (C == 4) words[k] = (words[k] & 0xFFFFFF) | alpha[(i + 1) % 2][k];
        }
    }
};

extern "C" __global__ void __launch_bounds__(256, 3)
    correlate_3x3_int(const Item* items, const u32* starts, int n)
{
    int block;
    Item item = find_item(items, starts, n, block);
    const CorrelateInt of = *global<const CorrelateInt>(item.data);
    if (item.channels == 1) make_by_pairs<1>(item, block, CorrelateRows<1>{of});
    else if (item.channels == 3) make_by_pairs<3>(item, block, CorrelateRows<3>{of});
    else make_by_pairs<4>(item, block, CorrelateRows<4>{of});
}
LAUNCHED_BY_LINES(correlate_3x3_int, PAIRS_BLOCK);
