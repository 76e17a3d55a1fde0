// Pixels whose colours are multiplied by their alpha, and divided again, rounded as Pillow does.
#pragma once
#include "kernels/headers/common.cuh"

// Load a pixel's samples; with alpha, unless `straight`, colours are multiplied by it.
template <int C>
__device__ __forceinline__ void load_pixel(const u8* at, bool straight, int* samples)
{
    u32 over = (u64)at & 3;
    const u32* words = (const u32*)(at - over);
    u32 word = words[0] >> 8 * over;
    if (C == 3 && over > 1) word |= words[1] << (32 - 8 * over);
    for (int c = 0; c < C; ++c) samples[c] = byte_of(word, c);
    for (int c = 0; c < C - 1 && C == 4 && !straight; ++c) {
        u32 product = samples[c] * samples[C - 1] + 128;
        samples[c] = (product + (product >> 8)) >> 8;
    }
}

// Divide the colours of a pixel by its alpha.
__device__ __forceinline__ u32 divided(u32 pixel)
{
    u32 alpha = pixel >> 24;
    if (alpha == 0 || alpha == 255) return pixel;
    u32 made[3];
    for (int c = 0; c < 3; ++c) made[c] = min(255 * byte_of(pixel, c) / alpha, 255u);
    return packed(made[0], made[1], made[2], alpha);
}
