// Histograms: where the counts lie, how a block counts, and cumulative sums.
#pragma once
#include "kernels/headers/common.cuh"
#include "kernels/headers/scan.cuh"

// The data of filters that count levels; `parameters` belong to the filter.
struct HistogramData {
    u32 parameters[4];
    u32 counts[3][256];  // uploaded as 0
    u8 tables[3][256];   // what levels become, for filters that map by tables
};

// The counters of a block. They lie eight times side by side in shared memory, one for every eighth
// lane: in a plain image four lanes meet at a counter instead of 32.
struct SharedHistogram {
    u32* bins;

    __device__ __forceinline__ void operator()(int plane, u32 level) const
    {
        atomicAdd(&bins[(plane * 256 + level) * 8 + threadIdx.x % 8], 1u);
    }

    __device__ __forceinline__ void clear(int levels) const
    {
        for (int i = threadIdx.x; i < 2 * levels; i += THREADS)
            ((uint4*)bins)[i] = make_uint4(0, 0, 0, 0);
    }

    // Return the sum of a counter's eight copies; `level` counts on over the planes.
    __device__ __forceinline__ u32 total(int level) const
    {
        uint4 a = ((uint4*)bins)[2 * level], b = ((uint4*)bins)[2 * level + 1];
        return a.x + a.y + a.z + a.w + b.x + b.y + b.z + b.w;
    }
};

// Return the sum of the counts up to the thread's level, its own included. All threads must call
// it.
__device__ __forceinline__ u32 cumulative_count(u32 own, u32* totals)
{
    u32 upto = scan_warp(own);
    if (threadIdx.x % 32 == 31) totals[threadIdx.x / 32] = upto;
    __syncthreads();
    upto = before_thread(own, upto, totals) + own;
    __syncthreads();
    return upto;
}
