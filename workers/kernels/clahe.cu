// Contrast-limited equalisation as OpenCV computes it: a table for every tile of the image, mirrored
// to a whole number of tiles, and every luminance between those of the four tiles around it.

struct Clahe {
    int tiles, width, height, clip;  // tiles along a side; their size in pixels; samples a level
    float scale, across, down;       // 255 / area, 1 / width, 1 / height of a tile
};

constexpr int CLAHE_WIDTH = 128, CLAHE_HEIGHT = 16;

// Y of cv2.COLOR_RGB2YCrCb.
__device__ __forceinline__ int luminance(int red, int green, int blue)
{
    return (red * 4899 + green * 9617 + blue * 1868 + 8192) >> 14;
}

// Count the luminances of pixels x … x+n-1, n at most four, of a row.
template <int C>
__device__ __forceinline__ void count_four(
    const u8* row, int width, int x, int n, const Counters& counters)
{
    u32 plane[4] = {};
    if (x + 4 <= width) pixels4<C>(row, width, x, plane);
    else
        for (int k = 0; k < n; ++k)
            for (int c = 0; c < C; ++c) plane[c] |= (u32)row[mirrored(x + k, width) * C + c] << 8 * k;
    for (int k = 0; k < n; ++k) {
        u32 level = byte_of(plane[0], k);
        counters(0, C == 1 ? level : luminance(level, byte_of(plane[1], k), byte_of(plane[2], k)));
    }
}

template <int C>
__device__ __forceinline__ void count_tile(
    const Item& item, const Clahe& of, int block, const Counters& counters)
{
    int left = block % of.tiles * of.width, top = block / of.tiles * of.height;
    int groups = (of.width + 3) / 4;
    for (int i = threadIdx.x; i < groups * of.height; i += THREADS) {
        int x = i % groups * 4, y = mirrored(top + i / groups, item.height);
        count_four<C>(source_row(item, y), item.width, left + x, min(4, of.width - x), counters);
    }
}

// A block a tile, a thread a level.
extern "C" __global__ void __launch_bounds__(256)
clahe_tables(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 bins[256 * 2];
    __shared__ u32 totals[8], excess;
    int block, level = threadIdx.x;
    Item item = owner(items, starts, n, block);
    const Clahe& of = *global<const Clahe>(item.data);
    for (int i = 0; i < 2; ++i) bins[2 * level + i] = make_uint4(0, 0, 0, 0);
    if (level == 0) excess = 0;
    __syncthreads();
    Counters counters = {(u32*)bins};
    if (item.channels == 1) count_tile<1>(item, of, block, counters);
    else if (item.channels == 3) count_tile<3>(item, of, block, counters);
    else count_tile<4>(item, of, block, counters);
    __syncthreads();
    uint4 a = bins[2 * level], b = bins[2 * level + 1];
    int count = a.x + a.y + a.z + a.w + b.x + b.y + b.z + b.w;
    if (count > of.clip) atomicAdd(&excess, (u32)(count - of.clip));
    __syncthreads();
    int rest = excess % 256, step = max(256 / max(rest, 1), 1);
    count = min(count, of.clip) + excess / 256 + (level % step == 0 && level / step < rest);
    float tone = __fmul_rn(__uint2float_rn(counted_upto(count, totals)), of.scale);
    global<u8>(item.scratch)[block * 256 + level] = (u8)min(__float2int_rn(tone), 255);
}

// Where a pixel lies between two tiles: both, and how much of the second.
struct Between {
    int first, second;
    float share;
};

__device__ __forceinline__ Between between(int at, float inverse, int tiles)
{
    float place = __fsub_rn(__fmul_rn(__int2float_rn(at), inverse), 0.5f);
    int first = __float2int_rd(place);
    return {max(first, 0), min(first + 1, tiles - 1), __fsub_rn(place, __int2float_rn(first))};
}

__device__ __forceinline__ float mixed(float first, float second, float share)
{
    return __fadd_rn(__fmul_rn(first, __fsub_rn(1.0f, share)), __fmul_rn(second, share));
}

__device__ __forceinline__ int equalised(
    const u8* upper, const u8* lower, const Between& x, float share, int level)
{
    int first = x.first * 256 + level, second = x.second * 256 + level;
    float above = mixed(as_float(upper[first]), as_float(upper[second]), x.share);
    float below = mixed(as_float(lower[first]), as_float(lower[second]), x.share);
    return min(__float2int_rn(mixed(above, below, share)), 255);
}

__device__ __forceinline__ u32 as_byte(int value) { return min(max(value, 0), 255); }

// A pixel with another luminance, by way of YCrCb as OpenCV rounds it.
__device__ __forceinline__ void relit(const u32* colour, int from, int to, u32* made)
{
    int red = as_byte((((int)colour[0] - from) * 11682 + (128 << 14) + 8192) >> 14) - 128;
    int blue = as_byte((((int)colour[2] - from) * 9241 + (128 << 14) + 8192) >> 14) - 128;
    made[0] = as_byte(to + ((red * 22987 + 8192) >> 14));
    made[1] = as_byte(to + ((blue * -5636 + red * -11698 + 8192) >> 14));
    made[2] = as_byte(to + ((blue * 29049 + 8192) >> 14));
}

template <int C>
__device__ __forceinline__ void clahe_tile(const Item& item, const Tile& tile, u32* out)
{
    const Clahe& of = *global<const Clahe>(item.data);
    const u8* tables = global<const u8>(item.scratch);
    int group = threadIdx.x % (CLAHE_WIDTH / 4) * 4;
    Between x[4];
    for (int k = 0; k < 4; ++k) x[k] = between(tile.x + group + k, of.across, of.tiles);
    for (int row = threadIdx.x / (CLAHE_WIDTH / 4); row < tile.height && group < tile.width;
         row += THREADS / (CLAHE_WIDTH / 4)) {
        Between y = between(tile.y + row, of.down, of.tiles);
        const u8 *upper = tables + y.first * of.tiles * 256, *lower = tables + y.second * of.tiles * 256;
        u32 plane[C], bytes[4 * C];
        pixels4<C>(source_row(item, tile.y + row), item.width, tile.x + group, plane);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            Between at = {min(x[k].first, of.tiles - 1), x[k].second, x[k].share};
            u32 colour[C];
            for (int c = 0; c < C; ++c) colour[c] = byte_of(plane[c], k);
            if constexpr (C == 1) {
                bytes[k] = equalised(upper, lower, at, y.share, colour[0]);
            } else {
                int level = luminance(colour[0], colour[1], colour[2]);
                relit(colour, level, equalised(upper, lower, at, y.share, level), bytes + C * k);
                if constexpr (C == 4) bytes[4 * k + 3] = colour[3];
            }
        }
#pragma unroll
        for (int i = 0; i < C; ++i)
            out[(row * CLAHE_WIDTH + group) / 4 * C + i] =
                packed(bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]);
    }
    __syncthreads();
    store_tile<CLAHE_WIDTH * C>(item, tile, (const u8*)out);
}

extern "C" __global__ void __launch_bounds__(256)
clahe(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 out[CLAHE_WIDTH * CLAHE_HEIGHT / 4 + 1];
    int block;
    Item item = owner(items, starts, n, block);
    Tile tile = tile_of(item, block, CLAHE_WIDTH, CLAHE_HEIGHT);
    if (item.channels == 1) clahe_tile<1>(item, tile, (u32*)out);
    else if (item.channels == 3) clahe_tile<3>(item, tile, (u32*)out);
    else clahe_tile<4>(item, tile, (u32*)out);
}
