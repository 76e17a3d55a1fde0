// Storing the results of separable.cuh: a warp writes eight rows of 16 pixels by way of shared
// memory.
#pragma once
#include "filters/separable/separable.cuh"
#include "kernels/headers/common.cuh"
#include "kernels/headers/pixels.cuh"

// Store rows that do not begin at multiples of 16 bytes or do not end in the image. The function is
// separate for the reason given at `replicated4`.
template <int C>
static __device__ __noinline__ void store_eight_ends(
    u8* first, u32 stride, int rows, int bytes, const u32* from)
{
    for (int i = threadIdx.x % 32; i < rows * (4 * C + 1); i += 32) {
        int row = i / (4 * C + 1);
        u8* line = first + row * stride;
        store4(line, (const u8*)(from + row * 4 * C), i % (4 * C + 1) * 4 - (int)((u64)line & 3),
            bytes);
    }
}

// Store a lane's four pixels of C channels at x, y in the tile, together with those of the warp:
// eight rows of 16 pixels.
template <int C>
__device__ __forceinline__ void store_eight(
    const Item& item, const Tile& tile, int x, int y, const u32* plane, u32* buffer)
{
    int lane = threadIdx.x % 32;
    u32 *mine = buffer + threadIdx.x / 32 * 128, words[C], stride = item.width * C;
    interleave<C>(plane, words);
    for (int c = 0; c < C; ++c) mine[lane * C + c] = words[c];
    __syncwarp();
    int left = x & ~15, top = y & ~7, rows = min(8, tile.height - top),
        bytes = min(16, tile.width - left) * C;
    u8* first = global<u8>(item.dst) + ((tile.y + top) * stride + (tile.x + left) * C);
    if (stride % 16 || bytes < 16 * C) store_eight_ends<C>(first, stride, rows, bytes, mine);
    else if (lane / C < rows && lane < 8 * C)
        *(uint4*)(first + (lane / C * stride + lane % C * 16)) = *(const uint4*)(mine + 4 * lane);
    __syncwarp();
}

// Filter every plane but alpha of an image of C channels.
template <int REACH, int C, class Rule>
__device__ __forceinline__ void filter_colours(
    const Item& item, const Tile& tile, const Rule& rule, u32* planes, u32* buffer)
{
    constexpr int COLOURS = C == 1 ? 1 : 3;
    stage_planes_of<REACH, C, COLOURS>(item, tile, planes);
    filter_planes<REACH, COLOURS>(item, tile, rule, planes, [&](int x, int y, const u32* made) {
        u32 plane[C];
        if constexpr (C == 4)
            pixels4<C>(source_row(item, tile.y + y), item.width, tile.x + x, plane);
        for (int c = 0; c < COLOURS; ++c) plane[c] = made[c];
        store_eight<C>(item, tile, x, y, plane, buffer);
    });
}

// Store what a rule makes of lumas as an image of C channels.
template <int REACH, int C, class Rule>
__device__ __forceinline__ void filter_grey(
    const Item& item, const Tile& tile, const Rule& rule, u32* plane, u32* buffer)
{
    filter_planes<REACH, 1>(item, tile, rule, plane, [&](int x, int y, const u32* made) {
        u32 planes[C];
        for (int c = 0; c < C; ++c) planes[c] = made[0];
        store_eight<C>(item, tile, x, y, planes, buffer);
    });
}

template <int REACH> __device__ __forceinline__ Tile separable_tile_of(const Item& item, int block)
{
    return tile_of(item, block, SeparableTile<REACH>::WIDTH, SeparableTile<REACH>::HEIGHT);
}
