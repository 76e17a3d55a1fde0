// Edges by one operator of up to 7 × 7 integer weights on the luma; the result is grey.
#include "kernels/headers/borders.cuh"
#include "kernels/headers/common.cuh"

constexpr int WIDE_EDGES_WIDTH = 64, WIDE_EDGES_HEIGHT = 16, MOST_SIDE = 7;
constexpr int WIDE_EDGES_PITCH = WIDE_EDGES_WIDTH + MOST_SIDE - 1;

struct WideEdges {
    double scale;
    int side, reserved;
    int weights[MOST_SIDE * MOST_SIDE];
};

template <int C>
__device__ __forceinline__ void wide_edges_tile(
    const Item& item, const Tile& tile, const WideEdges& of, const int* weights, u8* lumas, u8* out)
{
    int across = WIDE_EDGES_WIDTH + of.side - 1, down = WIDE_EDGES_HEIGHT + of.side - 1,
        half = of.side / 2;
    for (int i = threadIdx.x; i < across * down; i += THREADS) {
        int x = tile.x + i % across - half, y = tile.y + i / across - half;
        u32 pixel = bordered_colour<C>(item, x, y, REPLICATE);
        if constexpr (C > 1) pixel = luma(byte_of(pixel, 0), byte_of(pixel, 1), byte_of(pixel, 2));
        lumas[i / across * WIDE_EDGES_PITCH + i % across] = (u8)pixel;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < WIDE_EDGES_WIDTH * WIDE_EDGES_HEIGHT; i += THREADS) {
        int x = i % WIDE_EDGES_WIDTH, y = i / WIDE_EDGES_WIDTH, sum = 0;
        for (int row = 0; row < of.side; ++row)
            for (int column = 0; column < of.side; ++column)
                sum += weights[row * of.side + column] *
                    lumas[(y + row) * WIDE_EDGES_PITCH + x + column];
        // In doubles, as the specification computes it.
        u8 tone = (u8)min(abs(sum) * of.scale + 0.5, 255.0);
        for (int c = 0; c < min(C, 3); ++c) out[i * C + c] = tone;
        if (C == 4 && x < tile.width)
            out[i * C + 3] = source_row(item, tile.y + y)[(tile.x + x) * C + 3];
    }
    __syncthreads();
    store_tile<WIDE_EDGES_WIDTH * C>(item, tile, out);
}

extern "C" __global__ void __launch_bounds__(256)
    edges_wide(const Item* items, const u32* starts, int n)
{
    __shared__ u8 lumas[(WIDE_EDGES_HEIGHT + MOST_SIDE - 1) * WIDE_EDGES_PITCH];
    __shared__ uint4 out[WIDE_EDGES_WIDTH * WIDE_EDGES_HEIGHT / 4 + 1];
    __shared__ int weights[MOST_SIDE * MOST_SIDE];
    int block;
    Item item = find_item(items, starts, n, block);
    const WideEdges& of = *global<const WideEdges>(item.data);
    Tile tile = tile_of(item, block, WIDE_EDGES_WIDTH, WIDE_EDGES_HEIGHT);
    if (threadIdx.x < MOST_SIDE * MOST_SIDE) weights[threadIdx.x] = of.weights[threadIdx.x];
    if (item.channels == 1) wide_edges_tile<1>(item, tile, of, weights, lumas, (u8*)out);
    else if (item.channels == 3) wide_edges_tile<3>(item, tile, of, weights, lumas, (u8*)out);
    else wide_edges_tile<4>(item, tile, of, weights, lumas, (u8*)out);
}
LAUNCHED_BY_TILES(edges_wide, WIDE_EDGES_WIDTH, WIDE_EDGES_HEIGHT);
