// Flips and rotations: pixels only change places. Flips reverse sixteen pixels a thread; rotations
// go through a square in shared memory. A tile is a tile of the result.
#include "kernels/headers/common.cuh"

constexpr int FLIP_WIDTH = 128, FLIP_HEIGHT = 32, ROTATE_SIDE = 64;

struct Flip {
    int across, down;
};

// Reverse four pixels.
template <int C> __device__ __forceinline__ void reverse4(const u32* in, u32* out)
{
    if constexpr (C == 1) {
        out[0] = __byte_perm(in[0], 0, 0x0123);
    } else if constexpr (C == 3) {
        u32 third = __byte_perm(in[1], in[2], 0x0043), second = __byte_perm(in[0], in[1], 0x0043);
        out[0] = __byte_perm(in[2], in[1], 0x6321);
        out[1] = __byte_perm(third, second, 0x5410);
        out[2] = __byte_perm(in[0], in[1], 0x2105);
    } else {
        for (int i = 0; i < 4; ++i) out[i] = in[3 - i];
    }
}

template <int C>
__device__ __forceinline__ void flip_tile(const Item& item, const Tile& tile, u8* out)
{
    Flip flip = *global<const Flip>(item.data);
    int row = threadIdx.x / 8, x = threadIdx.x % 8 * 16;
    if (row < tile.height && x < tile.width) {
        int from = flip.across ? item.width - 16 - tile.x - x : tile.x + x;
        int y = flip.down ? item.height - 1 - tile.y - row : tile.y + row;
        u32 in[4 * C], made[4 * C];
#pragma unroll
        for (int i = 0; i < C; ++i)
            samples16(source_row(item, y), item.width * C, C, from * C + 16 * i, in + 4 * i);
#pragma unroll
        for (int i = 0; i < 4; ++i) reverse4<C>(in + (3 - i) * C, made + i * C);
#pragma unroll
        for (int i = 0; i < 4 * C; ++i) made[i] = flip.across ? made[i] : in[i];
#pragma unroll
        for (int i = 0; i < C; ++i)
            store16(out + (row * FLIP_WIDTH + x) * C + 16 * i, made + 4 * i);
    }
    __syncthreads();
    store_tile<FLIP_WIDTH * C>(item, tile, out);
}

extern "C" __global__ void __launch_bounds__(256) flip(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 out[FLIP_WIDTH * FLIP_HEIGHT / 4 + 1];
    int block;
    Item item = find_item(items, starts, n, block);
    Tile tile = tile_of(item, block, FLIP_WIDTH, FLIP_HEIGHT);
    if (item.channels == 1) flip_tile<1>(item, tile, (u8*)out);
    else if (item.channels == 3) flip_tile<3>(item, tile, (u8*)out);
    else flip_tile<4>(item, tile, (u8*)out);
}
LAUNCHED_BY_TILES(flip, FLIP_WIDTH, FLIP_HEIGHT);

// Return pixel x of a row in shared memory, in the low bytes.
template <int C> __device__ __forceinline__ u32 pixel_at(const u32* row, int x)
{
    if constexpr (C == 1) return ((const u8*)row)[x];
    else if constexpr (C == 4) return row[x];
    else return __funnelshift_r(row[3 * x / 4], row[3 * x / 4 + 1], 3 * x % 4 * 8) & 0xFFFFFF;
}

template <int C> __device__ __forceinline__ void join4(const u32* pixels, u32* words)
{
    if constexpr (C == 1) {
        words[0] = packed(pixels[0], pixels[1], pixels[2], pixels[3]);
    } else if constexpr (C == 3) {
        words[0] = pixels[0] | pixels[1] << 24;
        words[1] = pixels[1] >> 8 | pixels[2] << 16;
        words[2] = pixels[2] >> 16 | pixels[3] << 8;
    } else {
        for (int i = 0; i < 4; ++i) words[i] = pixels[i];
    }
}

// Rotate a tile. Row k in shared memory is the row of the source that becomes column k of the tile.
// Rows are an odd number of words apart, so that the words four rows further lie in another bank.
template <int C>
__device__ __forceinline__ void rotate_tile(
    const Item& item, const Tile& tile, bool clockwise, u32* rows, u32* out, const Item& turned)
{
    constexpr int PITCH = ROTATE_SIDE / 4 * C + 1;
    int k = threadIdx.x / 4, group = threadIdx.x % 4 * 16;
    int first = clockwise ? tile.y : item.width - ROTATE_SIDE - tile.y;
    int x = first + group, y = clockwise ? item.height - 1 - tile.x - k : tile.x + k;
    if (k < tile.width && x > -16 && x < item.width) {
        for (int i = 0; i < C; ++i) {
            u32 four[4];
            samples16(source_row(item, y), item.width * C, C, x * C + 16 * i, four);
            for (int j = 0; j < 4; ++j) rows[k * PITCH + group / 4 * C + 4 * i + j] = four[j];
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < ROTATE_SIDE * ROTATE_SIDE / 4; i += THREADS) {
        int row = i / (ROTATE_SIDE / 4), column = i % (ROTATE_SIDE / 4) * 4;
        u32 pixels[4];
        for (int j = 0; j < 4; ++j)
            pixels[j] =
                pixel_at<C>(rows + (column + j) * PITCH, clockwise ? row : ROTATE_SIDE - 1 - row);
        join4<C>(pixels, out + i * C);
    }
    __syncthreads();
    store_tile<ROTATE_SIDE * C>(turned, tile, (const u8*)out);
}

extern "C" __global__ void __launch_bounds__(256)
    rotate90(const Item* items, const u32* starts, int n)
{
    __shared__ u32 rows[ROTATE_SIDE * (ROTATE_SIDE + 1)];
    __shared__ uint4 out[ROTATE_SIDE * ROTATE_SIDE / 4 + 1];
    int block;
    Item item = find_item(items, starts, n, block), turned = item;
    turned.width = item.height, turned.height = item.width;
    Tile tile = tile_of(turned, block, ROTATE_SIDE, ROTATE_SIDE);
    bool clockwise = *global<const int>(item.data);
    if (item.channels == 1) rotate_tile<1>(item, tile, clockwise, rows, (u32*)out, turned);
    else if (item.channels == 3) rotate_tile<3>(item, tile, clockwise, rows, (u32*)out, turned);
    else rotate_tile<4>(item, tile, clockwise, rows, (u32*)out, turned);
}
LAUNCHED_BY_TILES(rotate90, ROTATE_SIDE, ROTATE_SIDE);
