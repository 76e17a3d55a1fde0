// Gradients of the luma by one or two operators of up to 7 × 7 weights, as grey.

constexpr int EDGES_WIDTH = 64, EDGES_HEIGHT = 16, MOST_SIDE = 7;
constexpr int EDGES_PITCH = EDGES_WIDTH + MOST_SIDE - 1;

struct Edges {
    double scale;
    int side;
    int both;  // whether the length of two gradients counts, or one alone
    int weights[2][MOST_SIDE * MOST_SIDE];
};

// min(255, floor(scale * length + 0.5)), in doubles as the specification has it.
__device__ __forceinline__ u32 edge_tone(const Edges& of, int first, int second)
{
    double length = abs(first);
    if (of.both) length = rint(sqrt((double)first * first + (double)second * second));
    return (u32)min(length * of.scale + 0.5, 255.0);
}

template <int C>
__device__ __forceinline__ void edges_tile(
    const Item& item, const Tile& tile, const Edges& of, const int* weights, u8* lumas, u8* out)
{
    int across = EDGES_WIDTH + of.side - 1, down = EDGES_HEIGHT + of.side - 1, half = of.side / 2;
    for (int i = threadIdx.x; i < across * down; i += THREADS) {
        int x = tile.x + i % across - half, y = tile.y + i / across - half;
        u32 pixel = bordered_colour<C>(item, x, y, REPLICATE);
        if constexpr (C > 1) pixel = luma(byte_of(pixel, 0), byte_of(pixel, 1), byte_of(pixel, 2));
        lumas[i / across * EDGES_PITCH + i % across] = (u8)pixel;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < EDGES_WIDTH * EDGES_HEIGHT; i += THREADS) {
        int x = i % EDGES_WIDTH, y = i / EDGES_WIDTH, first = 0, second = 0;
        for (int row = 0; row < of.side; ++row)
            for (int column = 0; column < of.side; ++column) {
                int level = lumas[(y + row) * EDGES_PITCH + x + column], at = row * of.side + column;
                first += weights[at] * level;
                second += weights[MOST_SIDE * MOST_SIDE + at] * level;
            }
        u8 tone = (u8)edge_tone(of, first, second);
        for (int c = 0; c < min(C, 3); ++c) out[i * C + c] = tone;
        if (C == 4 && x < tile.width)
            out[i * C + 3] = source_row(item, tile.y + y)[(tile.x + x) * C + 3];
    }
    __syncthreads();
    store_tile<EDGES_WIDTH * C>(item, tile, out);
}

extern "C" __global__ void __launch_bounds__(256)
edges(const Item* items, const u32* starts, int n)
{
    __shared__ u8 lumas[(EDGES_HEIGHT + MOST_SIDE - 1) * EDGES_PITCH];
    __shared__ uint4 out[EDGES_WIDTH * EDGES_HEIGHT / 4 + 1];
    __shared__ int weights[2 * MOST_SIDE * MOST_SIDE];
    int block;
    Item item = owner(items, starts, n, block);
    const Edges& of = *global<const Edges>(item.data);
    Tile tile = tile_of(item, block, EDGES_WIDTH, EDGES_HEIGHT);
    if (threadIdx.x < 2 * MOST_SIDE * MOST_SIDE) weights[threadIdx.x] = of.weights[0][threadIdx.x];
    if (item.channels == 1) edges_tile<1>(item, tile, of, weights, lumas, (u8*)out);
    else if (item.channels == 3) edges_tile<3>(item, tile, of, weights, lumas, (u8*)out);
    else edges_tile<4>(item, tile, of, weights, lumas, (u8*)out);
}
