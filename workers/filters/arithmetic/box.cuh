// Squares of 2 · radius + 1 pixels around a pixel, and the means over them.
#pragma once
#include "kernels/headers/common.cuh"

struct Box {
    int radius, area;  // area: the square of 2 · radius + 1
    u64 inverse;       // floor(2**64 / (2 · area)) + 1
};

__device__ __forceinline__ const Box& box_of(const Item& item)
{
    return *global<const Box>(item.data);
}

// Return floor((2 · sum + area) / (2 · area)), the mean rounded half up, by a multiplication. The
// quotient is exact because the numerator times the divisor is below 2**64.
__device__ __forceinline__ u32 mean_of(const Box& box, u32 sum)
{
    u32 n = 2 * sum + box.area;
    return (u32)(((u64)n * (u32)(box.inverse >> 32) + __umulhi(n, (u32)box.inverse)) >> 32);
}
