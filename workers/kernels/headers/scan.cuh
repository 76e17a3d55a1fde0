// Sums over the lanes of a warp and the warps of a block.
#pragma once
#include "kernels/headers/common.cuh"

// Add the value of the lane `step` below, if there is one.
#ifndef EMULATED
__device__ __forceinline__ void add_lower(u32& value, int step)
{
    asm volatile("{ .reg .pred within; .reg .u32 lower; "
                 "shfl.sync.up.b32 lower|within, %0, %1, 0, -1; @within add.u32 %0, lower, %0; }"
        : "+r"(value)
        : "r"(step));
}
#endif

// Return the sum of the values of the lanes of a warp up to this one.
template <class T> __device__ __forceinline__ T scan_warp(T value)
{
    for (int step = 1; step < 32; step *= 2) {
        T before = __shfl_up_sync(~0u, value, step);
        if (threadIdx.x % 32 >= step) value += before;
    }
    return value;
}

// Return the sum of the values of all threads before this one, from the warp's sums and the warps'
// totals.
template <class T> __device__ __forceinline__ T before_thread(T own, T upto, const T* totals)
{
    T before = upto - own;
    for (int warp = 0; warp < (int)threadIdx.x / 32; ++warp) before += totals[warp];
    return before;
}
