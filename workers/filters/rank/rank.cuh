// The data of medians and ranks of every size.
#pragma once
#include "kernels/headers/common.cuh"

// The side of the square, and how many of its samples are before the one sought in ascending order.
struct RankSquare {
    int size, rank;
};

__device__ __forceinline__ RankSquare rank_square_of(const Item& item)
{
    return *global<const RankSquare>(item.data);
}
