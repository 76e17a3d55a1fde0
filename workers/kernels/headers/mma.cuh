// Products of bytes on the tensor cores: 16 × 32 times 32 × 8, added to 16 × 8 sums (PTX ISA,
// "Matrix fragments for mma.m16n8k32"). All lanes of a warp call together. Lane 4 · g + t holds
//
//    left (16 × 32):  rows g (x, z) and g + 8 (y, w), columns 4 · t … + 3 (x, y) and 16 more (z, w)
//    right (32 × 8):  column g, rows 4 · t … + 3 ([0]) and 16 more ([1])
//    sums (16 × 8):   rows g ([0], [1]) and g + 8 ([2], [3]), columns 2 · t and 2 · t + 1
//
// Before compute capability 8.0 four products of 8 × 16 times 16 × 8 do the same.
#pragma once
#include "kernels/headers/common.cuh"

#ifndef EMULATED
__device__ __forceinline__ void multiply_add(const uint4& left, const u32* right, u32* sums)
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(left.x), "r"(left.y), "r"(left.z), "r"(left.w), "r"(right[0]), "r"(right[1]));
#else
    u32 half[4] = {left.x, left.y, left.z, left.w};
    for (int i = 0; i < 4; ++i)
        asm("mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+r"(sums[i % 2 * 2]), "+r"(sums[i % 2 * 2 + 1])
            : "r"(half[i]), "r"(right[i / 2]));
#endif
}

// Multiply and add the first 16 columns on the left only: `left` is row g, `under` row g + 8.
__device__ __forceinline__ void multiply_add_half(u32 left, u32 under, u32 right, u32* sums)
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.s32.u8.u8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, "
        "%1, %2, %3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(left), "r"(under), "r"(right));
#else
    u32 half[2] = {left, under};
    for (int i = 0; i < 2; ++i)
        asm("mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+r"(sums[i * 2]), "+r"(sums[i * 2 + 1])
            : "r"(half[i]), "r"(right));
#endif
}

// Multiply as `multiply_add` does, but begin with `start` instead of `sums`.
__device__ __forceinline__ void multiply_from(
    const uint4& left, const u32* right, const u32* start, u32* sums)
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
        : "=r"(sums[0]), "=r"(sums[1]), "=r"(sums[2]), "=r"(sums[3])
        : "r"(left.x), "r"(left.y), "r"(left.z), "r"(left.w), "r"(right[0]), "r"(right[1]),
        "r"(start[0]), "r"(start[1]), "r"(start[2]), "r"(start[3]));
#else
    for (int i = 0; i < 4; ++i) sums[i] = start[i];
    multiply_add(left, right, sums);
#endif
}
#else
__device__ __forceinline__ void multiply_add_half(u32 left, u32 under, u32 right, u32* sums)
{
    u32 rights[2] = {right, 0};
    multiply_add({left, under, 0, 0}, rights, sums);
}
__device__ __forceinline__ void multiply_from(
    const uint4& left, const u32* right, const u32* start, u32* sums)
{
    for (int i = 0; i < 4; ++i) sums[i] = start[i];
    multiply_add(left, right, sums);
}
#endif
