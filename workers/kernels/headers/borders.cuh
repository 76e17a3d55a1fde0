// Border modes: which pixel stands for a place beyond the ends of an image.
#pragma once
#include "kernels/headers/common.cuh"

enum Border { REPLICATE, REFLECT, MIRROR, WRAP, CONSTANT };

// Return which place in 0 … size - 1 stands for a place beyond the ends; -1 means the background.
__device__ __forceinline__ int bordered(int at, int size, int border)
{
    if (at >= 0 && at < size) return at;
    if (border == REPLICATE) return clamped(at, size);
    if (border == CONSTANT) return -1;
    if (border == MIRROR) return mirrored(at, size);
    int period = border == REFLECT ? 2 * size : size, place = at % period;
    if (place < 0) place += period;
    return place < size ? place : period - 1 - place;
}

// Return the colour of a pixel, red in the lowest byte; it is black beyond a constant border.
template <int C>
__device__ __forceinline__ u32 bordered_colour(const Item& item, int x, int y, int border)
{
    int row = bordered(y, item.height, border), column = bordered(x, item.width, border);
    if (row < 0 || column < 0) return 0;
    const u8* at = source_row(item, row) + column * C;
    if constexpr (C == 1) return at[0];
    else return at[0] | at[1] << 8 | at[2] << 16;
}
