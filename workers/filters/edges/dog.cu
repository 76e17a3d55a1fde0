// Difference of two Gaussians of the luma. Scratch holds the lumas, if the image is not grey, and
// the filtered rows of both.
#include "filters/arithmetic/grey_plane.cuh"
#include "filters/separable/gaussian_columns.cuh"
#include "filters/separable/gaussian_rows.cuh"
#include "kernels/headers/common.cuh"

struct Dog {
    u32 scale;   // Q16
    int second;  // bytes from the first blur's weights to the second's
    int reserved[2];
    Gaussian first;
};

constexpr int DOG_HEADER = 16;  // bytes before the weights of the first blur

__device__ __forceinline__ u64 rounded_up_256(u64 bytes) { return (bytes + 255) & ~255ull; }

// Return the lumas as an image of one channel, with the weights and the scratch of one of the
// blurs.
__device__ __forceinline__ Item dog_blur(const Item& item, int which)
{
    Item blur = item;
    blur.channels = 1;
    if (item.channels > 1) blur.src = item.scratch;
    blur.data += DOG_HEADER + which * global<const Dog>(item.data)->second;
    blur.scratch += rounded_up_256(pixels_of(item) + 4);
    blur.scratch += which * rounded_up_256(2ull * (item.width + 3) * item.height);
    return blur;
}

extern "C" __global__ void __launch_bounds__(256)
    dog_rows(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 planes[ROWS_SHARED / 16];
    __shared__ u32 weights[400];
    int block;
    Item item = find_item(items, starts, n, block), blur = dog_blur(item, item.step - 1);
    Tile tile = tile_of(blur, block, ROWS_WIDTH, ROWS_HEIGHT);
    const Gaussian& of = gaussian_of(blur);
    for (int i = threadIdx.x; i < of.across; i += THREADS) weights[i] = of.weights[i];
    blur_rows<1, 1, u8, u32, u16>(blur, tile, (u8*)planes, weights);
}
LAUNCHED_BY_TILES(dog_rows, ROWS_WIDTH, ROWS_HEIGHT);

__device__ __forceinline__ void dog_tile(
    const Item& item, const Tile& tile, const u32* weights, u8* out)
{
    constexpr int R = 4;
    u64 scale = global<const Dog>(item.data)->scale;
    Item first = dog_blur(item, 0), second = dog_blur(item, 1);
    for (int i = threadIdx.x; i < COLUMNS_WIDTH * (COLUMNS_HEIGHT / R); i += THREADS) {
        int x = i % COLUMNS_WIDTH, row = i / COLUMNS_WIDTH * R;
        if (x >= tile.width || row >= tile.height) continue;
        u32 one[R], other[R];
        blur_column<R, false, u32, u16>(first, 1, 0, tile.x + x, tile.y + row, weights, one);
        blur_column<R, false, u32, u16>(
            second, 1, 0, tile.x + x, tile.y + row, weights + 400, other);
#pragma unroll
        for (int o = 0; o < R; ++o) {
            u32 apart = one[o] > other[o] ? one[o] - other[o] : other[o] - one[o];
            u8 tone = (u8)min((apart * scale + (1ull << 39)) >> 40, 255ull);
            u8* to = out + ((row + o) * COLUMNS_WIDTH + x) * item.channels;
            for (int c = 0; c < min(item.channels, 3); ++c) to[c] = tone;
            if (item.channels == 4)
                to[3] = source_row(item, tile.y + row + o)[(tile.x + x) * 4 + 3];
        }
    }
}

extern "C" __global__ void __launch_bounds__(256)
    dog_columns(const Item* items, const u32* starts, int n)
{
    __shared__ u32 weights[800];
    __shared__ uint4 out[COLUMNS_WIDTH * COLUMNS_HEIGHT / 4 + 1];
    int block;
    Item item = find_item(items, starts, n, block);
    Tile tile = tile_of(item, block, COLUMNS_WIDTH, COLUMNS_HEIGHT);
    for (int which = 0; which < 2; ++which) {
        const Gaussian& of = gaussian_of(dog_blur(item, which));
        for (int i = threadIdx.x; i < of.down; i += THREADS)
            weights[400 * which + i] = of.weights[of.across + i];
    }
    __syncthreads();
    dog_tile(item, tile, weights, (u8*)out);
    __syncthreads();
    store_tile_of<COLUMNS_WIDTH>(item, tile, (const u8*)out);
}
LAUNCHED_BY_TILES(dog_columns, COLUMNS_WIDTH, COLUMNS_HEIGHT);
