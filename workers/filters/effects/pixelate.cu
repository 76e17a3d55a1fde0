// Pixelation: squares of one colour. A block sums and then fills all squares that begin in its
// tile.
#include "kernels/headers/common.cuh"
#include "kernels/headers/pixels.cuh"

constexpr int PIXELATE_SIDE = 64, MOST_SQUARES = 32 * 32;
constexpr int PIECE = 64;  // pixels of one row and one square that a thread sums

// The squares of a block: `across` by `down` of them, which cover the part `part` of the image.
struct Squares {
    int size, across, down;
    Tile part;
};

__device__ __forceinline__ Squares squares_of(const Item& item, const Tile& tile, int size)
{
    int x = (tile.x + size - 1) / size, y = (tile.y + size - 1) / size;
    int across = (tile.x + tile.width + size - 1) / size - x;
    int down = (tile.y + tile.height + size - 1) / size - y;
    Tile part = {x * size, y * size, 0, 0};
    part.width = min(across * size, item.width - part.x);
    part.height = min(down * size, item.height - part.y);
    return {size, across, down, part};
}

// Sum up to PIECE pixels of a row, from x to before `end`; with alpha, premultiplied ones.
template <int C>
__device__ __forceinline__ void sum_piece(const Item& item, int x, int end, int y, u32* sums)
{
    const u8* row = source_row(item, y);
    for (int c = 0; c < C; ++c) sums[c] = 0;
    for (; x < end; x += 4) {
        u32 plane[C], mask = end - x < 4 ? (1u << 8 * (end - x)) - 1 : ~0u;
        pixels4<C>(row, item.width, x, plane);
        u32 weights = (C == 4 ? plane[C - 1] : 0x01010101u) & mask;
        for (int c = 0; c < min(C, 3); ++c) sums[c] = __dp4a(plane[c], weights, sums[c]);
        if constexpr (C == 4) sums[3] = __dp4a(weights, 0x01010101u, sums[3]);
    }
}

template <int C, class Sum>
__device__ __forceinline__ void sum_squares(const Item& item, const Squares& squares, Sum* sums)
{
    int size = squares.size, pieces = (size + PIECE - 1) / PIECE, units = squares.across * pieces;
    for (int i = threadIdx.x; i < squares.part.height * units; i += THREADS) {
        int row = i / units, column = i % units / pieces, x = column * size + i % pieces * PIECE;
        int end = min(min(x + PIECE, (column + 1) * size), squares.part.width);
        u32 piece[C];
        sum_piece<C>(item, squares.part.x + x, squares.part.x + end, squares.part.y + row, piece);
        Sum* to = sums + (row / size * squares.across + column) * C;
        for (int c = 0; c < C; ++c) atomicAdd(&to[c], (Sum)piece[c]);
    }
}

template <int C, class Sum>
__device__ __forceinline__ void mean_square(
    const Squares& squares, int index, const Sum* sums, u8* mean)
{
    int x = index % squares.across * squares.size, y = index / squares.across * squares.size;
    u32 n = min(squares.size, squares.part.width - x) * min(squares.size, squares.part.height - y);
    u32 whole = (2 * (u32)sums[C - 1] + n) / (2 * n);
    if constexpr (C < 4) {
        for (int c = 0; c < C - 1; ++c) mean[c] = (u8)((2 * (u32)sums[c] + n) / (2 * n));
    } else {
        u64 weight = sums[3];
        for (int c = 0; c < 3; ++c)
            mean[c] = whole ? (u8)quotient(2 * sums[c] + weight, 2 * weight) : 0;
    }
    mean[C - 1] = (u8)whole;
}

// Write the result: make one line for each row of squares, then copy it to every row of the image
// that it covers.
template <int C>
__device__ __forceinline__ void paint(
    const Item& item, const Squares& squares, const u8* means, u8* lines)
{
    const Tile& part = squares.part;
    int bytes = part.width * C, pitch = bytes + 4;
    for (int i = threadIdx.x; i < squares.down * part.width; i += THREADS) {
        int row = i / part.width, x = i % part.width;
        const u8* mean = means + (row * squares.across + x / squares.size) * C;
        for (int c = 0; c < C; ++c) lines[row * pitch + x * C + c] = mean[c];
    }
    __syncthreads();
    for (int row = threadIdx.x / 32; row < part.height; row += THREADS / 32) {
        const u8* from = lines + row / squares.size * pitch;
        u8* line = global<u8>(item.dst) + ((i64)(part.y + row) * item.width + part.x) * C;
        for (int at = 4 * (threadIdx.x % 32) - (int)((u64)line & 3); at < bytes; at += 128)
            store4(line, from, at, bytes);
    }
}

template <int C, class Sum>
__device__ __forceinline__ void pixelate_part(
    const Item& item, const Squares& squares, Sum* sums, u8* means, u8* lines)
{
    int n = squares.across * squares.down;
    for (int i = threadIdx.x; i < n * C; i += THREADS) sums[i] = 0;
    __syncthreads();
    sum_squares<C>(item, squares, sums);
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += THREADS)
        mean_square<C>(squares, i, sums + i * C, means + i * C);
    __syncthreads();
    paint<C>(item, squares, means, lines);
}

extern "C" __global__ void __launch_bounds__(256)
    pixelate(const Item* items, const u32* starts, int n)
{
    __shared__ u64 sums[MOST_SQUARES * 4];
    __shared__ u8 means[MOST_SQUARES * 4];
    __shared__ u32 lines[2200];  // room for 32 lines of 64 pixels, or for fewer and longer ones
    int block;
    Item item = find_item(items, starts, n, block);
    Tile tile = tile_of(item, block, PIXELATE_SIDE, PIXELATE_SIDE);
    Squares squares = squares_of(item, tile, *global<const int>(item.data));
    if (squares.across == 0 || squares.down == 0) return;
    if (item.channels == 1) pixelate_part<1>(item, squares, (u32*)sums, means, (u8*)lines);
    else if (item.channels == 3) pixelate_part<3>(item, squares, (u32*)sums, means, (u8*)lines);
    else pixelate_part<4>(item, squares, sums, means, (u8*)lines);
}
LAUNCHED_BY_TILES(pixelate, PIXELATE_SIDE, PIXELATE_SIDE);
