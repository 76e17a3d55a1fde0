// Squares around pixels, and the means over them.
#pragma once
#include "kernels/common.cuh"

struct Box {
    int radius, area;  // area: the square of 2 · radius + 1
    u64 inverse;       // floor(2**64 / (2 · area)) + 1
};

__device__ __forceinline__ const Box& box_of(const Item& item)
{
    return *global<const Box>(item.data);
}

// (2 · sum + area) / (2 · area) by a multiplication: exact, for numerator times divisor < 2**64.
__device__ __forceinline__ u32 mean_of(const Box& box, u32 sum)
{
    u32 n = 2 * sum + box.area;
    return (u32)(((u64)n * (u32)(box.inverse >> 32) + __umulhi(n, (u32)box.inverse)) >> 32);
}
