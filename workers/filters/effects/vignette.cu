// Vignette: light that falls off towards the corners. The first kernel makes a table of the light
// by squared distance from the centre, the second one applies it to all pixels.
#include "kernels/headers/common.cuh"
#include "kernels/headers/pixels.cuh"

struct Vignette {
    double amount, radius;
};

constexpr int VIGNETTE_WIDTH = 128, VIGNETTE_HEIGHT = 32, VIGNETTE_BLOCKS = 64;
constexpr int VIGNETTE_ROWS = VIGNETTE_HEIGHT / 2;
// The table has one entry more; the largest light is 65535, which lowers no level.
constexpr int DISTANCES = 65536;

extern "C" __global__ void __launch_bounds__(256)
    vignette_light(const Item* items, const u32* starts, int n)
{
    int block;
    Item item = find_item(items, starts, n, block);
    const Vignette of = *global<const Vignette>(item.data);
    u16* light = global<u16>(item.scratch);
    for (int i = block * THREADS + threadIdx.x; i <= DISTANCES; i += VIGNETTE_BLOCKS * THREADS) {
        double t = __ddiv_rn(sqrt((double)i / DISTANCES) - of.radius, 1 - of.radius);
        t = min(max(t, 0.0), 1.0);
        light[i] = (u16)min((1 - of.amount * t * t * (3 - 2 * t)) * DISTANCES + 0.5, 65535.0);
    }
}
LAUNCHED_BY_BLOCKS(vignette_light, VIGNETTE_BLOCKS);

// Return a coordinate's part of the squared distance from the centre, in units of 2**-30.
__device__ __forceinline__ u32 squared_offset(int at, int length)
{
    double offset = __ddiv_rn(2 * at + 1 - length, max(length - 1, 1));
    return (u32)(offset * offset * (1 << 29) + 0.5);
}

// Multiply four pixels by their light.
template <int C>
__device__ __forceinline__ void apply_light4(const u32* words, const u32* light, u32* out)
{
#pragma unroll
    for (int i = 0; i < C; ++i) {
        u32 made[4];
        for (int k = 0; k < 4; ++k)
            made[k] = byte_of(words[i], k) * light[(4 * i + k) / C] + (1 << 15);
        u32 low = __byte_perm(made[0], made[1], 0x0062),
            high = __byte_perm(made[2], made[3], 0x0062);
        out[i] = __byte_perm(low, high, 0x5410);
        if (C == 4) out[i] = __byte_perm(out[i], words[i], 0x7210);
    }
}

// Make a tile of the upper half and its mirror image in the lower half, because rows equally far
// from the centre have the same light.
template <int C>
__device__ __forceinline__ void vignette_tile(const Item& item, const Tile& upper,
    const Tile& lower, const u32* across, const u32* down, u32* out)
{
    constexpr int AT_ONCE = THREADS / (VIGNETTE_WIDTH / 4), TURNS = VIGNETTE_ROWS / AT_ONCE;
    const u16* table = global<const u16>(item.scratch);
    int group = threadIdx.x % (VIGNETTE_WIDTH / 4) * 4, first = threadIdx.x / (VIGNETTE_WIDTH / 4);
    u32 words[TURNS][2][C], *below = out + VIGNETTE_ROWS * VIGNETTE_WIDTH / 4 * C;
    bool whole =
        upper.width == VIGNETTE_WIDTH && item.width % 4 == 0 && upper.height == VIGNETTE_ROWS;
#pragma unroll
    for (int i = 0; i < TURNS; ++i) {
        int row = first + i * AT_ONCE, other = upper.height - 1 - row;
        const u8 *one = source_row(item, upper.y + row), *two = source_row(item, lower.y + other);
        if (whole) {
            for (int c = 0; c < C; ++c)
                words[i][0][c] = ((const u32*)(one + (upper.x + group) * C))[c];
            for (int c = 0; c < C; ++c)
                words[i][1][c] = ((const u32*)(two + (upper.x + group) * C))[c];
        } else if (row < upper.height && group < upper.width) {
            words4<C>(one, item.width, upper.x + group, words[i][0]);
            words4<C>(two, item.width, upper.x + group, words[i][1]);
        }
    }
#pragma unroll
    for (int i = 0; i < TURNS; ++i) {
        int row = first + i * AT_ONCE, other = upper.height - 1 - row;
        u32 light[4];
        if (row >= upper.height || group >= upper.width) break;
        for (int k = 0; k < 4; ++k) light[k] = table[(down[row] + across[group + k]) >> 14];
        apply_light4<C>(words[i][0], light, out + (row * VIGNETTE_WIDTH + group) / 4 * C);
        apply_light4<C>(words[i][1], light, below + (other * VIGNETTE_WIDTH + group) / 4 * C);
    }
    __syncthreads();
    store_tile<VIGNETTE_WIDTH * C>(item, upper, (const u8*)out);
    store_tile<VIGNETTE_WIDTH * C>(item, lower, (const u8*)below);
}

extern "C" __global__ void __launch_bounds__(256)
    vignette(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 out[VIGNETTE_WIDTH * VIGNETTE_HEIGHT / 4];
    __shared__ u32 across[VIGNETTE_WIDTH], down[VIGNETTE_ROWS];
    int block, i = threadIdx.x;
    Item item = find_item(items, starts, n, block);
    Tile upper = tile_of(item, block, VIGNETTE_WIDTH, VIGNETTE_HEIGHT), lower;
    upper.y /= 2, upper.height = min(VIGNETTE_ROWS, (item.height + 1) / 2 - upper.y);
    lower = upper, lower.y = item.height - upper.y - upper.height;
    if (i < VIGNETTE_WIDTH)
        across[i] = squared_offset(clamped(upper.x + i, item.width), item.width);
    else if (i < VIGNETTE_WIDTH + VIGNETTE_ROWS)
        down[i - VIGNETTE_WIDTH] =
            squared_offset(clamped(upper.y + i - VIGNETTE_WIDTH, item.height), item.height);
    __syncthreads();
    if (item.channels == 1) vignette_tile<1>(item, upper, lower, across, down, (u32*)out);
    else if (item.channels == 3) vignette_tile<3>(item, upper, lower, across, down, (u32*)out);
    else vignette_tile<4>(item, upper, lower, across, down, (u32*)out);
}
LAUNCHED_BY_TILES(vignette, VIGNETTE_WIDTH, VIGNETTE_HEIGHT);
