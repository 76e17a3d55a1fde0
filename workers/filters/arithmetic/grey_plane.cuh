// The plane of lumas. For a grey image it is the image itself; for others it lies in scratch, which
// has room for three times as much.
#pragma once
#include "kernels/headers/common.cuh"

__device__ __forceinline__ u32 pixels_of(const Item& item) { return (u32)item.width * item.height; }

// Return the lumas as an image of one channel that has its own part of the scratch.
__device__ __forceinline__ Item grey_of(const Item& item)
{
    Item grey = item;
    grey.channels = 1;
    if (item.channels > 1)
        grey.src = item.scratch, grey.scratch = item.scratch + 8ull * pixels_of(item);
    return grey;
}

// Bytes in front of `struct Gaussian` or `struct Separable` in the data of filters that have both a
// header of their own and weights.
constexpr int WEIGHTS_OFFSET = 32;

// Return the item with the weights as its data.
__device__ __forceinline__ Item with_weights(Item item)
{
    item.data += WEIGHTS_OFFSET;
    return item;
}
