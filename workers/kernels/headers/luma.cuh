// Lumas (ITU-R BT.601, in 16-bit fixed point as Pillow's) of four pixels at once.
#pragma once
#include "kernels/headers/common.cuh"
#include "kernels/headers/pixels.cuh"

// Return the lumas of four interleaved pixels. The upper and lower bytes of the weights are
// multiplied apart.
template <int C> __device__ __forceinline__ u32 lumas4(const u32* words)
{
    if constexpr (C == 1) {
        return words[0];
    } else {
        u32 pixel[4], sum[4];
        pixels_of_words<C>(words, pixel);
        for (int k = 0; k < 4; ++k)
            sum[k] =
                256 * __dp4a(pixel[k], 0x001D964Cu, 0u) + __dp4a(pixel[k], 0x002F468Bu, 32768u);
        return __byte_perm(
            __byte_perm(sum[0], sum[1], 0x0062), __byte_perm(sum[2], sum[3], 0x0062), 0x5410);
    }
}

// Return the lumas of pixels x … x+3 of a row; pixels beyond its ends replicate.
template <int C> __device__ __forceinline__ u32 row_lumas4(const u8* row, int width, int x)
{
    u32 words[C];
    if (x >= 0 && x + 4 <= width) {
        inner_pixels4<C>(row, x, words);
    } else {
        u32 plane[C];
        for (int c = 0; c < C; ++c) plane[c] = replicated_plane4(row + c, width, C, x);
        interleave<C>(plane, words);
    }
    return lumas4<C>(words);
}
