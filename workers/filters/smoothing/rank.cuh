// What medians and ranks of every size share.
#pragma once
#include "kernels/common.cuh"

// The data of medians and ranks: the side of the square, and how many of its samples go before the
// one sought.
struct RankSquare {
    int size, rank;
};

__device__ __forceinline__ RankSquare rank_square_of(const Item& item)
{
    return *global<const RankSquare>(item.data);
}
