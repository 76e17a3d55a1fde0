// The bilateral filter (Tomasi, Manduchi 1998) with OpenCV's weights, window and order of sums: a
// tile with its surroundings in shared memory, four pixels of a row a thread. OpenCV sums the last
// columns of a row in another order, so a level may differ by one now and then.

constexpr int MOST_REACH = 16;  // of the window

struct Bilateral {
    int radius;
    int reach[MOST_REACH + 1];                       // of the window's row that many rows away
    float space[MOST_REACH + 1][MOST_REACH + 1];     // weights by rows and columns away
    float colour[766];                               // by the sum of the colours' distances
};

constexpr int BILATERAL_WIDTH = CORRELATE_WIDTH, BILATERAL_HEIGHT = 16;
constexpr int BILATERAL_PITCH = BILATERAL_WIDTH + 2 * MOST_REACH + 1;  // odd: two rows, other banks
constexpr int BILATERAL_ROWS = BILATERAL_HEIGHT + 2 * MOST_REACH;
constexpr int SPACE_PITCH = 2 * MOST_REACH + 4;  // 0 behind the last weight, for four pixels

struct BilateralShared {
    u32 pixels[BILATERAL_ROWS * BILATERAL_PITCH];
    float space[(MOST_REACH + 1) * SPACE_PITCH];
    float colour[766 * 8];  // eight times side by side, so that few lanes meet in a bank
};

// The sums of four pixels.
template <int C> struct Smoothed {
    float sums[4][C], weights[4];
};

template <int C>
__device__ __forceinline__ void bilateral_load(
    const Item& item, const Tile& tile, const Bilateral& of, BilateralShared& shared)
{
    int across = BILATERAL_WIDTH + 2 * of.radius, down = BILATERAL_HEIGHT + 2 * of.radius;
    for (int i = threadIdx.x; i < across * down; i += THREADS) {
        int x = tile.x + i % across - of.radius, y = tile.y + i / across - of.radius;
        shared.pixels[i / across * BILATERAL_PITCH + i % across] = bordered_colour<C>(item, x, y, MIRROR);
    }
    for (int i = threadIdx.x; i < (MOST_REACH + 1) * SPACE_PITCH; i += THREADS) {
        int row = i / SPACE_PITCH, away = abs(i % SPACE_PITCH - MOST_REACH);
        bool within = row <= of.radius && away <= of.reach[row];
        shared.space[i] = within ? of.space[row][away] : 0.0f;
    }
    for (int i = threadIdx.x; i < (C == 1 ? 256 : 766) * 8; i += THREADS)
        shared.colour[i] = of.colour[i / 8];
}

// A pixel of the window counts for those of the four it is near to.
template <int C>
__device__ __forceinline__ void bilateral_pixel(
    u32 pixel, const u32* centres, const float* space, const float* colour, Smoothed<C>& smoothed)
{
    float levels[C];
    for (int c = 0; c < C; ++c) levels[c] = as_float(byte_of(pixel, c));
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        if (space[k] == 0.0f) continue;
        float weight = __fmul_rn(space[k], colour[__vsadu4(pixel, centres[k]) * 8]);
        smoothed.weights[k] = __fadd_rn(smoothed.weights[k], weight);
        for (int c = 0; c < C; ++c)
            smoothed.sums[k][c] = __fmaf_rn(levels[c], weight, smoothed.sums[k][c]);
    }
}

template <int C>
__device__ __forceinline__ void bilateral_four(
    const Bilateral& of, const BilateralShared& shared, int x, int y, u32* made)
{
    const u32* middle = shared.pixels + (y + of.radius) * BILATERAL_PITCH + x + of.radius;
    const float* colour = shared.colour + threadIdx.x % 8;
    u32 centres[4] = {middle[0], middle[1], middle[2], middle[3]};
    Smoothed<C> smoothed = {};
    for (int dy = -of.radius; dy <= of.radius; ++dy) {
        const u32* row = middle + dy * BILATERAL_PITCH;
        const float* weights = shared.space + abs(dy) * SPACE_PITCH + MOST_REACH;
        int reach = of.reach[abs(dy)];
        float space[4] = {};
        for (int dx = -reach; dx < reach + 4; ++dx) {
            space[3] = space[2], space[2] = space[1], space[1] = space[0], space[0] = weights[dx];
            bilateral_pixel<C>(row[dx], centres, space, colour, smoothed);
        }
    }
    for (int k = 0; k < 4; ++k) {
        float share = __fdiv_rn(1.0f, smoothed.weights[k]);
        for (int c = 0; c < C; ++c) {
            float sum = smoothed.sums[k][c];
            float level = C == 1 ? __fdiv_rn(sum, smoothed.weights[k]) : __fmul_rn(sum, share);
            made[C * k + c] = __float2int_rn(level);
        }
    }
}

// With alpha C is 4, and the colours' C is 3.
template <int C>
__device__ __forceinline__ void bilateral_tile(
    const Item& item, const Tile& tile, const Bilateral& of, BilateralShared& shared)
{
    constexpr int COLOURS = C == 1 ? 1 : 3;
    bilateral_load<C>(item, tile, of, shared);
    __syncthreads();
    int x = threadIdx.x % (BILATERAL_WIDTH / 4) * 4, y = threadIdx.x / (BILATERAL_WIDTH / 4);
    u32 made[4 * COLOURS];
    bilateral_four<COLOURS>(of, shared, x, y, made);
    __syncthreads();
    recoloured4<C>(item, tile, x, y, made, shared.pixels);
    __syncthreads();
    store_tile<BILATERAL_WIDTH * C>(item, tile, (const u8*)shared.pixels);
}

extern "C" __global__ void __launch_bounds__(256)
bilateral(const Item* items, const u32* starts, int n)
{
    __shared__ __align__(16) BilateralShared shared;
    int block;
    Item item = owner(items, starts, n, block);
    const Bilateral& of = *global<const Bilateral>(item.data);
    Tile tile = tile_of(item, block, BILATERAL_WIDTH, BILATERAL_HEIGHT);
    if (item.channels == 1) bilateral_tile<1>(item, tile, of, shared);
    else if (item.channels == 3) bilateral_tile<3>(item, tile, of, shared);
    else bilateral_tile<4>(item, tile, of, shared);
}
