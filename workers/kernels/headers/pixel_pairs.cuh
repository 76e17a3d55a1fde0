// Samples as they lie in memory, two a word, with their neighbours, so that one addition or
// multiplication serves two. Tiles and their surroundings are those of staging.cuh; a thread takes
// C words of four rows.
#pragma once
#include "kernels/headers/common.cuh"
#include "kernels/headers/staging.cuh"

constexpr int PAIRS_ROWS = 4;

// C words of a row and one more on either side, the even samples of each word and the odd ones
// apart.
template <int C> struct PixelPairs {
    u32 even[C + 2], odd[C + 2];

    // Load a row; `words` points at the first of the C.
    __device__ __forceinline__ void load(const u32* words)
    {
#pragma unroll
        for (int k = 0; k < C + 2; ++k) {
            u32 word = words[k - 1];
            even[k] = word & HALVES, odd[k] = __byte_perm(word, 0, 0x4341);
        }
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
};

// The part of a tile that this thread computes: its first row, and its first word in a row.
template <int C> struct ThreadSlice {
    static constexpr int ACROSS = STAGED_WIDTH / 4, PITCH = ACROSS * C + 8;
    int row = threadIdx.x / ACROSS * PAIRS_ROWS, word = threadIdx.x % ACROSS * C;

    // Return the same word of the staged row above the first.
    __device__ __forceinline__ const u32* staged(const u32* words) const
    {
        return words + row * PITCH + word + 4;
    }
};
static_assert(THREADS / (STAGED_WIDTH / 4) * PAIRS_ROWS == STAGED_HEIGHT);
