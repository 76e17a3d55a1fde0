// Samples as they lie in memory, two a word, with their neighbours, so that one addition or
// multiplication serves two. A thread walks down a band of 16 samples by PAIRS_ROWS rows, in
// registers alone: no thread waits for another, and the next two rows are loaded meanwhile.
#pragma once
#include "kernels/headers/common.cuh"

constexpr int PAIRS_ROWS = 10, PAIRS_WORDS = 4, PAIRS_BLOCK = 40960;
constexpr int PAIRS_NARROW = 20;  // bytes of a row from which 16 and a word beside them fit
static_assert(PAIRS_BLOCK == 4 * PAIRS_WORDS * PAIRS_ROWS * THREADS);

// The words of a row and one more on either side, the even samples of each word and the odd ones
// apart. C is the number of channels.
template <int C> struct PixelPairs {
    u32 even[PAIRS_WORDS + 2], odd[PAIRS_WORDS + 2];

    __device__ __forceinline__ void load(const u32* words)
    {
#pragma unroll
        for (int k = 0; k < PAIRS_WORDS + 2; ++k)
            even[k] = words[k] & HALVES, odd[k] = __byte_perm(words[k], 0, 0x4341);
    }

    // Return the samples that lie C before, or C after, the samples of word k.
    __device__ __forceinline__ u32 even_before(int k) const
    {
        if constexpr (C == 1) return __funnelshift_r(odd[k], odd[k + 1], 16);
        return C == 3 ? odd[k] : even[k];
    }

    __device__ __forceinline__ u32 even_after(int k) const
    {
        if constexpr (C == 1) return odd[k + 1];
        return C == 3 ? __funnelshift_r(odd[k + 1], odd[k + 2], 16) : even[k + 2];
    }

    __device__ __forceinline__ u32 odd_before(int k) const
    {
        if constexpr (C == 1) return even[k + 1];
        return C == 3 ? __funnelshift_r(even[k], even[k + 1], 16) : odd[k];
    }

    __device__ __forceinline__ u32 odd_after(int k) const
    {
        if constexpr (C == 1) return __funnelshift_r(even[k + 1], even[k + 2], 16);
        return C == 3 ? even[k + 2] : odd[k + 2];
    }

    // Return word k as it was loaded.
    __device__ __forceinline__ u32 word(int k) const
    {
        return __byte_perm(even[k + 1], odd[k + 1], 0x6240);
    }
};

// Load 16 samples of row y from sample `at` on, and a word on either side; pixels beyond the ends of
// the row replicate. ALIGNED: rows are whole multiples of 16 bytes.
template <int C, bool ALIGNED>
__device__ __forceinline__ void load_pairs(const Item& item, int y, int at, u32* words)
{
    const u8* row = source_row(item, y);
    int bytes = item.width * C, after = bytes - at - 16;
    if constexpr (ALIGNED) {
        words[0] = at ? *(const u32*)(row + at - 4) : 0;
        load16(row + at, words + 1);
        words[5] = after ? *(const u32*)(row + at + 16) : 0;
    } else if (bytes < PAIRS_NARROW) {
        for (int k = 0; k < 6; ++k) words[k] = replicated4(row, bytes, C, at - 4 + 4 * k);
    } else {
        int over = (u64)(row + at) & 3;
        const u32* from = (const u32*)(row + at - over);
        u32 last = after + over > 4 ? from[5] : 0;
        words[0] = at ? from[-1] : 0;
        for (int k = 1; k < 5; ++k) words[k] = from[k - 1];
        words[5] = after + over > 0 ? from[4] : 0;
        for (int k = 0; k < 6; ++k)
            words[k] = __funnelshift_r(words[k], k < 5 ? words[k + 1] : last, 8 * over);
    }
    if (at == 0) words[0] = words[1] << (32 - 8 * C);
    if (after < 4) {
        u32 own = (1u << 8 * max(after, 0)) - 1;
        words[5] = (words[5] & own) | (words[4] >> (32 - 8 * C) & ~own);
    }
}

// Store the first `bytes` of 16 bytes at any address, by aligned words but at the ends.
__device__ __forceinline__ void store_bytes(u8* to, uint4 made, int bytes)
{
    u32 words[4] = {made.x, made.y, made.z, made.w}, over = (u64)to & 3;
    if (bytes < 16) {
#pragma unroll
        for (int k = 0; k < 16; ++k)
            if (k < bytes) to[k] = byte_of(words[k / 4], k % 4);
    } else if (over == 0) {
        for (int k = 0; k < 4; ++k) ((u32*)to)[k] = words[k];
    } else {
        u32 before = 4 - over, ends = __funnelshift_r(words[3], words[0], 8 * before);
        for (int k = 1; k < 4; ++k)
            *(u32*)(to - over + 4 * k) = __funnelshift_r(words[k - 1], words[k], 8 * before);
        for (u32 k = 0; k < 4; ++k) to[k < over ? 16 - over + k : k - over] = byte_of(ends, k);
    }
}

// Make an image by bands. `rule.begin(at)` begins a band of columns, `rule.take(pairs, i)` gets row
// i - 1 of it, from the row above to the row below, and `rule.make(i, y, made)` then makes row
// i - 2, which is row y of the image.
template <int C, bool ALIGNED, class Rule>
__device__ __forceinline__ void walk_bands(const Item& item, int block, Rule& rule)
{
    u32 bytes = item.width * C, across = (bytes + 15) / 16,
        bands = across * ((item.height + PAIRS_ROWS - 1) / PAIRS_ROWS),
        blocks = (bytes * item.height + PAIRS_BLOCK - 1) / PAIRS_BLOCK;
    for (u32 band = block * THREADS + threadIdx.x; band < bands; band += blocks * THREADS) {
        u32 at = band % across * 16, top = band / across * PAIRS_ROWS;
        if (!ALIGNED && bytes >= PAIRS_NARROW) at = min(at, bytes - 16);  // two may make a sample
        u32 next[2][PAIRS_WORDS + 2];
        load_pairs<C, ALIGNED>(item, top - 1, at, next[0]);
        load_pairs<C, ALIGNED>(item, top, at, next[1]);
        rule.begin(at);
#pragma unroll 6
        for (int i = 0; i < PAIRS_ROWS + 2; ++i) {  // unrolled by the periods of i % 2 and i % 3
            PixelPairs<C> pairs;
            u32 made[PAIRS_WORDS];
            pairs.load(next[i % 2]);
            load_pairs<C, ALIGNED>(item, top + i + 1, at, next[i % 2]);
            rule.take(pairs, i);
            int y = top + i - 2;
            if (i < 2 || y >= item.height) continue;
            rule.make(i, y, made);
            u8* to = global<u8>(item.dst) + (u32)y * bytes + at;
            if (ALIGNED) store16(to, made);
            else store_bytes(to, make_uint4(made[0], made[1], made[2], made[3]), bytes - at);
        }
    }
}

template <int C, class Rule>
__device__ __forceinline__ void make_by_pairs(const Item& item, int block, Rule rule)
{
    if (item.width * C % 16 == 0) walk_bands<C, true>(item, block, rule);
    else walk_bands<C, false>(item, block, rule);
}
