// Light that falls off towards the corners: a table of it by the squared distance, then all pixels.

struct Vignette {
    double amount, radius;
};

constexpr int VIGNETTE_WIDTH = 128, VIGNETTE_HEIGHT = 32, VIGNETTE_BLOCKS = 64;
constexpr int DISTANCES = 65536;  // and one more; of light one less, for that takes no level away

extern "C" __global__ void __launch_bounds__(256)
vignette_light(const Item* items, const u32* starts, int n)
{
    int block;
    Item item = owner(items, starts, n, block);
    const Vignette of = *global<const Vignette>(item.data);
    u16* light = global<u16>(item.scratch);
    for (int i = block * THREADS + threadIdx.x; i <= DISTANCES; i += VIGNETTE_BLOCKS * THREADS) {
        double t = __ddiv_rn(sqrt((double)i / DISTANCES) - of.radius, 1 - of.radius);
        t = min(max(t, 0.0), 1.0);
        light[i] = (u16)min((1 - of.amount * t * t * (3 - 2 * t)) * DISTANCES + 0.5, 65535.0);
    }
}

// A coordinate's part of the squared distance from the centre, in units of 2**-30.
__device__ __forceinline__ u32 squared_offset(int at, int length)
{
    double offset = __ddiv_rn(2 * at + 1 - length, max(length - 1, 1));
    return (u32)(offset * offset * (1 << 29) + 0.5);
}

template <int C>
__device__ __forceinline__ void vignette_tile(
    const Item& item, const Tile& tile, const u32* across, const u32* down, u32* out)
{
    const u16* light = global<const u16>(item.scratch);
    int group = threadIdx.x % (VIGNETTE_WIDTH / 4) * 4;
    for (int row = threadIdx.x / (VIGNETTE_WIDTH / 4); row < tile.height && group < tile.width;
         row += THREADS / (VIGNETTE_WIDTH / 4)) {
        u32 plane[C], bytes[4 * C];
        pixels4<C>(source_row(item, tile.y + row), item.width, tile.x + group, plane);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            u32 lit = light[(down[row] + across[group + k]) >> 14];
            for (int c = 0; c < min(C, 3); ++c)
                bytes[C * k + c] = (byte_of(plane[c], k) * lit + (1 << 15)) >> 16;
            if constexpr (C == 4) bytes[4 * k + 3] = byte_of(plane[3], k);
        }
#pragma unroll
        for (int i = 0; i < C; ++i)
            out[(row * VIGNETTE_WIDTH + group) / 4 * C + i] =
                packed(bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]);
    }
    __syncthreads();
    store_tile<VIGNETTE_WIDTH * C>(item, tile, (const u8*)out);
}

extern "C" __global__ void __launch_bounds__(256)
vignette(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 out[VIGNETTE_WIDTH * VIGNETTE_HEIGHT / 4 + 1];
    __shared__ u32 across[VIGNETTE_WIDTH], down[VIGNETTE_HEIGHT];
    int block, i = threadIdx.x;
    Item item = owner(items, starts, n, block);
    Tile tile = tile_of(item, block, VIGNETTE_WIDTH, VIGNETTE_HEIGHT);
    if (i < VIGNETTE_WIDTH) across[i] = squared_offset(clamped(tile.x + i, item.width), item.width);
    else if (i < VIGNETTE_WIDTH + VIGNETTE_HEIGHT)
        down[i - VIGNETTE_WIDTH] =
            squared_offset(clamped(tile.y + i - VIGNETTE_WIDTH, item.height), item.height);
    __syncthreads();
    if (item.channels == 1) vignette_tile<1>(item, tile, across, down, (u32*)out);
    else if (item.channels == 3) vignette_tile<3>(item, tile, across, down, (u32*)out);
    else vignette_tile<4>(item, tile, across, down, (u32*)out);
}
