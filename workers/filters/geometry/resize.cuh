// Parameters and lines of weights, which both passes of resampling use.
#pragma once
#include "kernels/headers/common.cuh"
#include "kernels/headers/resample.cuh"

struct Resize {
    // Across and down, of the part of the source that is resampled, in its pixels.
    double start[2], scale[2];
    int size[2], taps[2];  // size of the result; room for the weights of each output
    int method;            // one of Method
    int columns_first;     // which axis is the first
};

constexpr int RESIZE_BITS = 22, RESIZE_BLOCKS = 16;

// Return a line of weights, int[2 + taps][size]: the first source pixel of every output, the number
// of pixels, and their weights.
__device__ __forceinline__ int* resize_line(const Item& item, const Resize& of, int axis)
{
    return global<int>(item.scratch) + axis * (2 + of.taps[0]) * of.size[0];
}
