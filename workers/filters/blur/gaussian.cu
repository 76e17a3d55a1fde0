// The first pass of the Gaussian: rows of the image to scratch.
#include "filters/separable/gaussian_rows.cuh"
#include "kernels/headers/common.cuh"

extern "C" __global__ void __launch_bounds__(256)
    gaussian_rows(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 planes[ROWS_SHARED / 16];
    __shared__ u32 weights[400];
    int block;
    Item item = find_item(items, starts, n, block);
    Tile tile = tile_of(item, block, ROWS_WIDTH, ROWS_HEIGHT);
    const Gaussian& of = gaussian_of(item);
    for (int i = threadIdx.x; i < of.across; i += THREADS) weights[i] = of.weights[i];
    if (item.channels == 1) blur_rows<1, 1, u8, u32, u16>(item, tile, (u8*)planes, weights);
    else if (item.channels == 3) blur_rows<3, 3, u8, u32, u16>(item, tile, (u8*)planes, weights);
    else if (!of.premultiplied) blur_rows<4, 3, u8, u32, u16>(item, tile, (u8*)planes, weights);
    else blur_rows<4, 4, u16, u64, u32>(item, tile, (u16*)planes, weights);
}
LAUNCHED_BY_TILES(gaussian_rows, ROWS_WIDTH, ROWS_HEIGHT);
