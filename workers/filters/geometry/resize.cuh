// What both passes of resampling share: parameters and lines of weights.
#pragma once
#include "kernels/common.cuh"

struct Resize {
    double start[2], scale[2];  // across, down: of the box that is seen, in pixels of the source
    int size[2], taps[2];       // of the result; room for the weights of each output
    int method;                 // one of Method
    int columns_first;          // which axis is the first
};

enum Method { NEAREST, BILINEAR, BICUBIC, LANCZOS };

constexpr int RESIZE_BITS = 22, RESIZE_BLOCKS = 16;

// int[2 + taps][size]: the first pixel of every output, how many there are, and their weights.
__device__ __forceinline__ int* resize_line(const Item& item, const Resize& of, int axis)
{
    return global<int>(item.scratch) + axis * (2 + of.taps[0]) * of.size[0];
}
