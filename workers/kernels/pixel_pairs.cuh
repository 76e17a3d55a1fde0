// Samples as they lie in memory, two a word, and the neighbours of each: what is added or
// multiplied is so twice at once. Tiles and their surroundings as in staging.cuh, C words of four
// rows a thread.
#pragma once
#include "kernels/common.cuh"
#include "kernels/staging.cuh"

constexpr int PAIRS_ROWS = 4;

// C words of a row and one more on either side: even samples of each word, and odd ones.
template <int C> struct PixelPairs {
    u32 even[C + 2], odd[C + 2];

    // `words` is the first of the C.
    __device__ __forceinline__ void load(const u32* words)
    {
#pragma unroll
        for (int k = 0; k < C + 2; ++k) {
            u32 word = words[k - 1];
            even[k] = word & HALVES, odd[k] = __byte_perm(word, 0, 0x4341);
        }
    }

    // Of the samples of word k: those C before, or C after.
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
};

// The part of a tile that is this thread's: its first row, and its first word in a row of the tile.
template <int C> struct ThreadSlice {
    static constexpr int ACROSS = STAGED_WIDTH / 4, PITCH = ACROSS * C + 8;
    int row = threadIdx.x / ACROSS * PAIRS_ROWS, word = threadIdx.x % ACROSS * C;

    // The same word of the staged row above the first.
    __device__ __forceinline__ const u32* staged(const u32* words) const
    {
        return words + row * PITCH + word + 4;
    }
};
static_assert(THREADS / (STAGED_WIDTH / 4) * PAIRS_ROWS == STAGED_HEIGHT);
