// Write the plane of lumas that filters of several passes work on.
#include "filters/arithmetic/grey_plane.cuh"
#include "kernels/headers/common.cuh"
#include "kernels/headers/lines.cuh"
#include "kernels/headers/luma.cuh"

template <int C> __device__ __forceinline__ void grey_line(const Item& item, int block)
{
    u32 total = pixels_of(item), end = min(total, (block + 1) * (LINE / C));
    const u8* src = global<const u8>(item.src);
    u8* grey = global<u8>(item.scratch);
    for (u32 at = block * (LINE / C) + 4 * threadIdx.x; at < end; at += 4 * THREADS) {
        u32 words[C];
        for (int i = 0; i < C; ++i) words[i] = *(const u32*)(src + (u64)at * C + 4 * i);
        *(u32*)(grey + at) = lumas4<C>(words);  // scratch has room beyond the last pixel
    }
}

extern "C" __global__ void __launch_bounds__(256)
    grey_plane(const Item* items, const u32* starts, int n)
{
    int block;
    Item item = find_item(items, starts, n, block);
    if (item.channels == 3) grey_line<3>(item, block);
    else if (item.channels == 4) grey_line<4>(item, block);
}
LAUNCHED_BY_LINES(grey_plane, LINE);
