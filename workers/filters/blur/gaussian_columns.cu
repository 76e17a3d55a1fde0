// The second pass of the Gaussian, down columns of scratch, and what is made of its sums: a blur,
// colours divided by their alpha, or the unsharp mask.

constexpr int COLUMNS_WIDTH = 64, COLUMNS_HEIGHT = 32;

// Neighbours in a column of scratch; INSIDE says that all of them are in the image.
template <bool INSIDE, class Middle> struct Down {
    const Middle* column;
    int y, height, step;

    template <int N> __device__ __forceinline__ void many(int place, u32* samples) const
    {
#pragma unroll
        for (int j = 0; j < N; ++j) {
            int row = INSIDE ? y + place + j : clamped(y + place + j, height);
            samples[j] = __ldg(column + row * step);
        }
    }
};

// Sums down one column of a plane for R rows from y on.
template <int R, bool INSIDE, class Sum, class Middle>
__device__ __forceinline__ void blur_column(
    const Item& item, int planes, int plane, int x, int y, const u32* weights, Sum* sums)
{
    int pitch = pitch_of<Middle>(item.width);
    const Middle* column = global<const Middle>(item.scratch) + plane * pitch + x;
    const Gaussian& of = gaussian_of(item);
    weighted<R>(of.column_centre, weights, of.down, sums,
                Down<INSIDE, Middle>{column, y, item.height, planes * pitch});
}

// What one sample becomes: `sum` in units of 2**-24, amount in those of 2**-16.
__device__ __forceinline__ u32 unsharp(u32 amount, u32 threshold, u32 level, u32 sum)
{
    bool darker = sum > level << 24;
    u32 distance = darker ? sum - (level << 24) : (level << 24) - sum;
    int change = (int)(((u64)distance * amount + (1ull << 39) - darker) >> 40);
    int made = min(max((int)level + (darker ? -change : change), 0), 255);
    return distance < threshold << 24 ? level : (u32)made;
}

template <bool INSIDE, bool UNSHARP>
__device__ __forceinline__ void blur_columns(
    const Item& item, const Tile& tile, const u32* weights, u8* out)
{
    constexpr int R = COLUMNS_WIDTH * COLUMNS_HEIGHT / THREADS;  // rows a thread
    const Gaussian& of = gaussian_of(item);
    int channels = item.channels, planes = min(channels, 3);
    int x = threadIdx.x % COLUMNS_WIDTH, row = threadIdx.x / COLUMNS_WIDTH * R;
#pragma unroll 1
    for (int c = 0; c < channels && x < tile.width && row < tile.height; ++c) {
        u32 sums[R];
        if (c < planes)
            blur_column<R, INSIDE, u32, u16>(item, planes, c, tile.x + x, tile.y + row, weights, sums);
#pragma unroll
        for (int o = 0; o < R; ++o) {
            u8* to = out + ((row + o) * COLUMNS_WIDTH + x) * channels + c;
            if (!UNSHARP) {
                *to = (u8)((sums[o] + (1 << 23)) >> 24);
            } else if (row + o < tile.height) {
                u32 level = source_row(item, tile.y + row + o)[(tile.x + x) * channels + c];
                *to = (u8)(c < planes ? unsharp(of.amount, of.threshold, level, sums[o]) : level);
            }
        }
    }
    __syncthreads();
    store_tile_of<COLUMNS_WIDTH>(item, tile, out);
}

// With alpha: colours divided by the alpha they were weighed with.
template <bool INSIDE>
__device__ __forceinline__ void blur_premultiplied(
    const Item& item, const Tile& tile, const u32* weights, u8* out)
{
    constexpr int R = 4;
    for (int i = threadIdx.x; i < COLUMNS_WIDTH * (COLUMNS_HEIGHT / R); i += THREADS) {
        int x = i % COLUMNS_WIDTH, row = i / COLUMNS_WIDTH * R;
        if (x >= tile.width || row >= tile.height) continue;
        u64 whole[R], sums[R];
        blur_column<R, INSIDE, u64, u32>(item, 4, 3, tile.x + x, tile.y + row, weights, whole);
        u8* to = out + (row * COLUMNS_WIDTH + x) * 4;
#pragma unroll
        for (int o = 0; o < R; ++o)
            to[o * COLUMNS_WIDTH * 4 + 3] = (u8)((whole[o] / 255 + (1 << 23)) >> 24);
#pragma unroll 1
        for (int c = 0; c < 3; ++c) {
            blur_column<R, INSIDE, u64, u32>(item, 4, c, tile.x + x, tile.y + row, weights, sums);
#pragma unroll
            for (int o = 0; o < R; ++o) {
                u8* pixel = to + o * COLUMNS_WIDTH * 4;
                pixel[c] = pixel[3] ? (u8)quotient(510 * sums[o] + whole[o], 2 * whole[o]) : 0;
            }
        }
    }
    __syncthreads();
    store_tile<COLUMNS_WIDTH * 4>(item, tile, out);
}

template <bool UNSHARP, bool INSIDE>
__device__ __forceinline__ void column_tile(
    const Item& item, const Tile& tile, const u32* weights, u8* out)
{
    if (UNSHARP || item.channels < 4) blur_columns<INSIDE, UNSHARP>(item, tile, weights, out);
    else if constexpr (!UNSHARP) blur_premultiplied<INSIDE>(item, tile, weights, out);
}

template <bool UNSHARP>
__device__ __forceinline__ void column_block(
    const Item& item, int block, u32* weights, u8* out)
{
    Tile tile = tile_of(item, block, COLUMNS_WIDTH, COLUMNS_HEIGHT);
    const Gaussian& of = gaussian_of(item);
    for (int i = threadIdx.x; i < of.down; i += THREADS) weights[i] = of.weights[of.across + i];
    __syncthreads();
    bool inside = tile.y >= of.down && tile.y + COLUMNS_HEIGHT + of.down <= item.height;
    if (inside) column_tile<UNSHARP, true>(item, tile, weights, out);
    else column_tile<UNSHARP, false>(item, tile, weights, out);
}

extern "C" __global__ void __launch_bounds__(256, 3)
gaussian_columns(const Item* items, const u32* starts, int n)
{
    __shared__ u32 weights[400];
    __shared__ uint4 out[COLUMNS_WIDTH * COLUMNS_HEIGHT / 4 + 1];
    int block;
    Item item = owner(items, starts, n, block);
    column_block<false>(item, block, weights, (u8*)out);
}

extern "C" __global__ void __launch_bounds__(256, 3)
unsharp_columns(const Item* items, const u32* starts, int n)
{
    __shared__ u32 weights[400];
    __shared__ uint4 out[COLUMNS_WIDTH * COLUMNS_HEIGHT / 4 + 1];
    int block;
    Item item = owner(items, starts, n, block);
    column_block<true>(item, block, weights, (u8*)out);
}
