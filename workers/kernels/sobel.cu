// Gradients of the luma by the 3 × 3 Sobel operator, through a table of tones.

struct Sobel {
    int axis;  // 0 x, 1 y, 2 magnitude
    int reserved[3];
    u8 tones[1443];  // of every length a gradient can have
};

constexpr int SOBEL_WIDTH = 128, SOBEL_HEIGHT = 16, SOBEL_WORDS = SOBEL_WIDTH / 4 + 2;

template <int C> __device__ __forceinline__ u32 luma4(const u32* plane)
{
    if constexpr (C == 1) {
        return plane[0];
    } else {
        u32 grey[4];
        for (int k = 0; k < 4; ++k)
            grey[k] = luma(byte_of(plane[0], k), byte_of(plane[1], k), byte_of(plane[2], k));
        return packed(grey[0], grey[1], grey[2], grey[3]);
    }
}

// The lumas of a tile, a pixel more on top and bottom, four more on either side.
template <int C>
__device__ __forceinline__ void stage_lumas(const Item& item, const Tile& tile, u32* grey)
{
    for (int i = threadIdx.x; i < (SOBEL_HEIGHT + 2) * SOBEL_WORDS; i += THREADS) {
        int x = tile.x + i % SOBEL_WORDS * 4 - 4, y = tile.y + i / SOBEL_WORDS - 1;
        if (x > tile.x + tile.width || y > tile.y + tile.height) continue;
        u32 plane[C];
        pixels4<C>(source_row(item, y), item.width, x, plane);
        grey[i] = luma4<C>(plane);
    }
}

// rint of the root: the float one is never half-way, for no square of an integer and a half is near.
__device__ __forceinline__ int length_of(int x, int y, int axis)
{
    if (axis < 2) return abs(axis ? y : x);
    float root = __fsqrt_rn(as_float(x * x + y * y));
    return __float_as_uint(__fadd_rn(root, 8388608.0f)) & 2047;
}

// The tones of four pixels: v are the lumas of three rows, a pixel before to a pixel after.
__device__ __forceinline__ u32 edges4(const int (*v)[6], const Sobel* sobel, const u8* tones)
{
    u32 tone[4];
    int down[6];
    for (int j = 0; j < 6; ++j) down[j] = v[0][j] + 2 * v[1][j] + v[2][j];
    for (int k = 0; k < 4; ++k) {
        int above = v[0][k] + 2 * v[0][k + 1] + v[0][k + 2];
        int below = v[2][k] + 2 * v[2][k + 1] + v[2][k + 2];
        tone[k] = tones[length_of(down[k + 2] - down[k], below - above, sobel->axis)];
    }
    return packed(tone[0], tone[1], tone[2], tone[3]);
}

// Four tones as four pixels.
template <int C>
__device__ __forceinline__ void spread4(const Item& item, int x, int y, u32 tones, u32* out)
{
    if constexpr (C == 1) {
        out[0] = tones;
    } else if constexpr (C == 3) {
        out[0] = __byte_perm(tones, 0, 0x1000);
        out[1] = __byte_perm(tones, 0, 0x2211);
        out[2] = __byte_perm(tones, 0, 0x3332);
    } else {
        u32 plane[C];
        pixels4<C>(source_row(item, y), item.width, x, plane);
        for (int k = 0; k < 4; ++k) out[k] = __byte_perm(tones, plane[3], 0x4000 + 0x1111 * k);
    }
}

template <int C>
__device__ __forceinline__ void sobel_tile(
    const Item& item, const Tile& tile, u32* grey, const u8* tones, u32* out)
{
    stage_lumas<C>(item, tile, grey);
    __syncthreads();
    int group = threadIdx.x % 32, row = threadIdx.x / 32 * 2;
    int v[4][6];
    for (int i = 0; i < 4; ++i) {
        const u32* words = grey + (row + i) * SOBEL_WORDS + group;
        v[i][0] = words[0] >> 24;
        for (int k = 0; k < 4; ++k) v[i][k + 1] = byte_of(words[1], k);
        v[i][5] = words[2] & 255;
    }
    for (int i = 0; i < 2; ++i) {
        int x = tile.x + 4 * group, y = tile.y + row + i;
        if (4 * group >= tile.width || row + i >= tile.height) continue;
        u32 edges = edges4(v + i, global<const Sobel>(item.data), tones);
        spread4<C>(item, x, y, edges, out + ((row + i) * 32 + group) * C);
    }
    __syncthreads();
    store_tile<SOBEL_WIDTH * C>(item, tile, (const u8*)out);
}

extern "C" __global__ void __launch_bounds__(256)
sobel(const Item* items, const u32* starts, int n)
{
    __shared__ u32 grey[(SOBEL_HEIGHT + 2) * SOBEL_WORDS];
    __shared__ uint4 out[SOBEL_WIDTH * SOBEL_HEIGHT / 4 + 1];
    __shared__ u8 tones[1444];
    int block;
    Item item = owner(items, starts, n, block);
    Tile tile = tile_of(item, block, SOBEL_WIDTH, SOBEL_HEIGHT);
    for (int i = threadIdx.x; i < 1443; i += THREADS) tones[i] = global<const Sobel>(item.data)->tones[i];
    if (item.channels == 1) sobel_tile<1>(item, tile, grey, tones, (u32*)out);
    else if (item.channels == 3) sobel_tile<3>(item, tile, grey, tones, (u32*)out);
    else sobel_tile<4>(item, tile, grey, tones, (u32*)out);
}
