// Transposition of matrices of bits and of bytes.
#pragma once
#include "kernels/headers/common.cuh"

// Exchange the bits of a outside `mask` with the bits of b `shift` places lower, which are inside
// it.
__device__ __forceinline__ void swap_bits(u32& a, u32& b, int shift, u32 mask)
{
    u32 low = (a & mask) | ((b & mask) << shift);
    b = (a >> shift & mask) | (b & ~mask);
    a = low;
}

// Transpose eight words: exchange bit k of word j with bit j of word k, in each of their four
// bytes.
__device__ __forceinline__ void transpose_bits(u32* w)
{
    for (int j = 0; j < 4; ++j) swap_bits(w[j], w[j + 4], 4, 0x0F0F0F0F);
    for (int j = 0; j < 8; ++j)
        if (!(j & 2)) swap_bits(w[j], w[j + 2], 2, 0x33333333);
    for (int j = 0; j < 8; j += 2) swap_bits(w[j], w[j + 1], 1, 0x55555555);
}

// Transpose a 4 × 4 matrix of bytes.
__device__ __forceinline__ void transpose_bytes(u32& a, u32& b, u32& c, u32& d)
{
    u32 words[4] = {a, b, c, d}, made[4];
    deinterleave<4>(words, made);
    a = made[0], b = made[1], c = made[2], d = made[3];
}

// Turn 32 bytes in order into 8 planes of 32 bits in order; `to_bytes` undoes it.
__device__ __forceinline__ void to_planes(u32* w)
{
    transpose_bytes(w[0], w[2], w[4], w[6]);
    transpose_bytes(w[1], w[3], w[5], w[7]);
    u32 x[8] = {w[0], w[2], w[4], w[6], w[1], w[3], w[5], w[7]};
    transpose_bits(x);
    for (int j = 0; j < 8; ++j) w[j] = x[j];
}

__device__ __forceinline__ void to_bytes(u32* w)
{
    transpose_bits(w);
    transpose_bytes(w[0], w[1], w[2], w[3]);
    transpose_bytes(w[4], w[5], w[6], w[7]);
    u32 x[8] = {w[0], w[4], w[1], w[5], w[2], w[6], w[3], w[7]};
    for (int j = 0; j < 8; ++j) w[j] = x[j];
}
