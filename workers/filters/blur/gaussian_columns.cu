// The second pass of the Gaussian: columns of scratch to the result, which is a blur, a blur
// divided by its alpha, or an unsharp mask.
#include "filters/separable/gaussian_columns.cuh"
#include "filters/separable/gaussian_rows.cuh"
#include "kernels/headers/common.cuh"

// Blur an image with alpha: colours are divided by the alpha that they were weighed with.
template <bool INSIDE>
__device__ __forceinline__ void blur_premultiplied(
    const Item& item, const Tile& tile, const u32* weights, u8* out)
{
    constexpr int R = 4;
    for (int i = threadIdx.x; i < COLUMNS_WIDTH * (COLUMNS_HEIGHT / R); i += THREADS) {
        int x = i % COLUMNS_WIDTH, row = i / COLUMNS_WIDTH * R;
        if (x >= tile.width || row >= tile.height) continue;
        u64 whole[R], sums[R];
        blur_column<R, INSIDE, u64, u32>(item, 4, 3, tile.x + x, tile.y + row, weights, whole);
        u8* to = out + (row * COLUMNS_WIDTH + x) * 4;
#pragma unroll
        for (int o = 0; o < R; ++o)
            to[o * COLUMNS_WIDTH * 4 + 3] = (u8)((whole[o] / 255 + (1 << 23)) >> 24);
#pragma unroll 1
        for (int c = 0; c < 3; ++c) {
            blur_column<R, INSIDE, u64, u32>(item, 4, c, tile.x + x, tile.y + row, weights, sums);
#pragma unroll
            for (int o = 0; o < R; ++o) {
                u8* pixel = to + o * COLUMNS_WIDTH * 4;
                pixel[c] = pixel[3] ? (u8)quotient(510 * sums[o] + whole[o], 2 * whole[o]) : 0;
            }
        }
    }
    __syncthreads();
    store_tile<COLUMNS_WIDTH * 4>(item, tile, out);
}

template <bool UNSHARP, bool INSIDE>
__device__ __forceinline__ void column_tile(
    const Item& item, const Tile& tile, const u32* weights, u8* out)
{
    if (UNSHARP || item.channels < 4) blur_columns<INSIDE, UNSHARP>(item, tile, weights, out);
    else if constexpr (!UNSHARP) blur_premultiplied<INSIDE>(item, tile, weights, out);
}

template <bool UNSHARP>
__device__ __forceinline__ void column_block(const Item& item, int block, u32* weights, u8* out)
{
    Tile tile = tile_of(item, block, COLUMNS_WIDTH, COLUMNS_HEIGHT);
    const Gaussian& of = gaussian_of(item);
    for (int i = threadIdx.x; i < of.down; i += THREADS) weights[i] = of.weights[of.across + i];
    __syncthreads();
    bool inside = tile.y >= of.down && tile.y + COLUMNS_HEIGHT + of.down <= item.height;
    if (inside) column_tile<UNSHARP, true>(item, tile, weights, out);
    else column_tile<UNSHARP, false>(item, tile, weights, out);
}

extern "C" __global__ void __launch_bounds__(256, 3)
    gaussian_columns(const Item* items, const u32* starts, int n)
{
    __shared__ u32 weights[400];
    __shared__ uint4 out[COLUMNS_WIDTH * COLUMNS_HEIGHT / 4 + 1];
    int block;
    Item item = find_item(items, starts, n, block);
    column_block<false>(item, block, weights, (u8*)out);
}
LAUNCHED_BY_TILES(gaussian_columns, COLUMNS_WIDTH, COLUMNS_HEIGHT);

extern "C" __global__ void __launch_bounds__(256, 3)
    unsharp_columns(const Item* items, const u32* starts, int n)
{
    __shared__ u32 weights[400];
    __shared__ uint4 out[COLUMNS_WIDTH * COLUMNS_HEIGHT / 4 + 1];
    int block;
    Item item = find_item(items, starts, n, block);
    column_block<true>(item, block, weights, (u8*)out);
}
LAUNCHED_BY_TILES(unsharp_columns, COLUMNS_WIDTH, COLUMNS_HEIGHT);
