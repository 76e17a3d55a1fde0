// The Gaussian as a rule of separable.cuh.
#pragma once
#include "kernels/headers/common.cuh"

// The Gaussian: rows are weighed in Q24 and rounded to the upper two bytes, columns in Q16.
struct Blurred {
    static constexpr int ACROSS = 3, DOWN = 2;
    static constexpr u32 HALF = 1 << 15, KEPT = 0x7362;

    __device__ __forceinline__ u32 half() const { return 1 << 23; }

    __device__ __forceinline__ u32 operator()(const u32* sums, u32) const
    {
        u32 low = __byte_perm(sums[0], sums[1], 0x0073),
            high = __byte_perm(sums[2], sums[3], 0x0073);
        return __byte_perm(low, high, 0x5410);
    }
};
