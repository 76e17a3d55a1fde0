// Blur along a line: the sum over the weights that are not 0, in Q15. A thread makes four pixels of
// a row. With alpha the sums are of premultiplied colours and fit 32 bits.
#include "kernels/headers/common.cuh"
#include "kernels/headers/pixels.cuh"

struct Tap {
    short x, y;  // distance from the pixel
    int weight;
};

struct Motion {
    int taps, reserved[3];
    Tap tap[1];
};

constexpr int MOTION_WIDTH = 128, MOTION_HEIGHT = 16, MOTION_BITS = 15;

template <int C>
__device__ __forceinline__ void motion_sums(
    const Item& item, const Motion& of, int x, int y, u32 sums[C][4])
{
    for (int c = 0; c < C; ++c)
        for (int k = 0; k < 4; ++k) sums[c][k] = 0;
    for (int i = 0; i < of.taps; ++i) {
        Tap tap = of.tap[i];
        u32 plane[C];
        pixels4<C>(source_row(item, y + tap.y), item.width, x + tap.x, plane);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            u32 weight = C == 4 ? tap.weight * byte_of(plane[C - 1], k) : tap.weight;
            for (int c = 0; c < min(C, 3); ++c) sums[c][k] += weight * byte_of(plane[c], k);
            if (C == 4) sums[C - 1][k] += weight;
        }
    }
}

__device__ __forceinline__ u32 motion_level(u32 sum)
{
    return (sum + (1 << (MOTION_BITS - 1))) >> MOTION_BITS;
}

template <int C>
__device__ __forceinline__ void motion_tile(const Item& item, const Tile& tile, u32* out)
{
    const Motion& of = *global<const Motion>(item.data);
    int x = threadIdx.x % (MOTION_WIDTH / 4) * 4;
    for (int row = threadIdx.x / (MOTION_WIDTH / 4); row < tile.height && x < tile.width;
        row += THREADS / (MOTION_WIDTH / 4)) {
        u32 sums[C][4], bytes[4 * C];
        motion_sums<C>(item, of, tile.x + x, tile.y + row, sums);
#pragma unroll
        for (int i = 0; i < 4 * C; ++i) {
            u32 sum = sums[i % C][i / C], whole = sums[C - 1][i / C];
            bytes[i] = motion_level(sum);
            if (C == 4 && i % C < 3)  // a colour weighs 255 times as much as its alpha
                bytes[i] = motion_level(whole)
                    ? quotient(510ull * sum + 255ull * whole, 510ull * whole)
                    : 0;
        }
#pragma unroll
        for (int i = 0; i < C; ++i)
            out[(row * MOTION_WIDTH + x) / 4 * C + i] =
                packed(bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]);
    }
    __syncthreads();
    store_tile<MOTION_WIDTH * C>(item, tile, (const u8*)out);
}

extern "C" __global__ void __launch_bounds__(256)
    motion_blur(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 out[MOTION_WIDTH * MOTION_HEIGHT / 4 + 1];
    int block;
    Item item = find_item(items, starts, n, block);
    Tile tile = tile_of(item, block, MOTION_WIDTH, MOTION_HEIGHT);
    if (item.channels == 1) motion_tile<1>(item, tile, (u32*)out);
    else if (item.channels == 3) motion_tile<3>(item, tile, (u32*)out);
    else motion_tile<4>(item, tile, (u32*)out);
}
LAUNCHED_BY_TILES(motion_blur, MOTION_WIDTH, MOTION_HEIGHT);
