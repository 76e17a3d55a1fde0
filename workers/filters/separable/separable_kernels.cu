// The rules and kernels of separable.cuh for the Gaussian and the unsharp mask: those named reach_8
// for windows that reach 8 samples, those named reach_24 for windows that reach 24.
#include "filters/separable/gaussian_columns.cuh"
#include "filters/separable/gaussian_rule.cuh"
#include "filters/separable/separable.cuh"
#include "filters/separable/separable_store.cuh"
#include "kernels/headers/common.cuh"

struct Unsharp {
    static constexpr int ACROSS = 3, DOWN = 2;
    static constexpr u32 HALF = 1 << 15, KEPT = 0x7362;
    u32 amount, threshold;

    __device__ __forceinline__ u32 half() const { return 0; }

    __device__ __forceinline__ u32 operator()(const u32* sums, u32 levels) const
    {
        u32 made[4];
#pragma unroll
        for (int k = 0; k < 4; ++k)
            made[k] = unsharp(amount, threshold, byte_of(levels, k), sums[k]);
        return packed(made[0], made[1], made[2], made[3]);
    }
};

// Filter a tile of an image of one or three channels, or, with MOST = 4, of any number.
template <int REACH, int MOST, class Rule>
__device__ __forceinline__ void separable_tile(
    const Item& item, int block, const Rule& rule, u32* planes, u32* buffer)
{
    Tile tile = separable_tile_of<REACH>(item, block);
    if (item.channels == 1) filter_colours<REACH, 1>(item, tile, rule, planes, buffer);
    else if (item.channels == 3) filter_colours<REACH, 3>(item, tile, rule, planes, buffer);
    else if constexpr (MOST == 4) filter_colours<REACH, 4>(item, tile, rule, planes, buffer);
}

extern "C" __global__ void __launch_bounds__(256, 3)
    gaussian_reach_8(const Item* items, const u32* starts, int n)
{
    __shared__ u32 planes[3 * SeparableTile<8>::PLANE];
    __shared__ uint4 buffer[STORE_WORDS / 4];
    int block;
    Item item = find_item(items, starts, n, block);
    separable_tile<8, 3>(item, block, Blurred(), planes, (u32*)buffer);
}
LAUNCHED_BY_TILES(gaussian_reach_8, SEPARABLE_WIDTH, SEPARABLE_HEIGHT_8);

extern "C" __global__ void __launch_bounds__(256, 2)
    gaussian_reach_24(const Item* items, const u32* starts, int n)
{
    __shared__ u32 planes[3 * SeparableTile<24>::PLANE];
    __shared__ uint4 buffer[STORE_WORDS / 4];
    int block;
    Item item = find_item(items, starts, n, block);
    separable_tile<24, 3>(item, block, Blurred(), planes, (u32*)buffer);
}
LAUNCHED_BY_TILES(gaussian_reach_24, SEPARABLE_WIDTH, SEPARABLE_HEIGHT_24);

extern "C" __global__ void __launch_bounds__(256, 3)
    unsharp_reach_8(const Item* items, const u32* starts, int n)
{
    __shared__ u32 planes[3 * SeparableTile<8>::PLANE];
    __shared__ uint4 buffer[STORE_WORDS / 4];
    int block;
    Item item = find_item(items, starts, n, block);
    const u32* of = separable_of(item).parameters;
    separable_tile<8, 4>(item, block, Unsharp{of[0], of[1]}, planes, (u32*)buffer);
}
LAUNCHED_BY_TILES(unsharp_reach_8, SEPARABLE_WIDTH, SEPARABLE_HEIGHT_8);

extern "C" __global__ void __launch_bounds__(256, 2)
    unsharp_reach_24(const Item* items, const u32* starts, int n)
{
    __shared__ u32 planes[3 * SeparableTile<24>::PLANE];
    __shared__ uint4 buffer[STORE_WORDS / 4];
    int block;
    Item item = find_item(items, starts, n, block);
    const u32* of = separable_of(item).parameters;
    separable_tile<24, 4>(item, block, Unsharp{of[0], of[1]}, planes, (u32*)buffer);
}
LAUNCHED_BY_TILES(unsharp_reach_24, SEPARABLE_WIDTH, SEPARABLE_HEIGHT_24);
