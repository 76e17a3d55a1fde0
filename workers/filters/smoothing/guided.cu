// Guided filter: K. He, J. Sun, X. Tang, "Guided image filtering", TPAMI 2013, equations 5, 6 and
// 8, in integers. The guide I is the luma, p is one colour, and means are over squares of 2 ·
// radius + 1:
//
//     slope = (mean(I · p) - mean(I) · mean(p)) / (variance(I) + eps)
//     offset = mean(p) - slope · mean(I)            out = mean(slope) · I + mean(offset)
//
// `guided_fit` writes a slope and an offset for every pixel to scratch, `guided_mean` takes their
// means; both run once for each colour, which is step / 2. Sums over squares are running sums: a
// block goes down its tile row by row, thread t keeps the sums over 2 · radius + 1 rows of four
// columns in registers, and prefix sums along the row turn columns into squares.
//
//     tile.x - radius                                 tile.x + tile.width + radius
//     |  t0  |  t1  |  t2  |   …   four columns a thread  …    |
//     row y + radius enters the column sums                    |  before[line][x]: the sum of
//     row y: pixel i sums the columns i … i + 2 · radius       |  all columns left of x; a square
//     row y - radius leaves after the row's results            |  is before[i + side] - before[i]
//
// Shared memory holds `before` for one row: of four lines (lumas, colours, lumas squared, products)
// in `guided_fit`, of two (slopes, offsets) in `guided_mean`.
#include "filters/arithmetic/box.cuh"
#include "kernels/headers/common.cuh"
#include "kernels/headers/luma.cuh"
#include "kernels/headers/pixels.cuh"
#include "kernels/headers/scan.cuh"

struct Guided {
    Box box;
    i64 spread;  // what is added to the variance: floor(eps · (255 · area)² + 0.5)
    i64 reserved;
};

// A line of the fit: a slope and an offset. Offsets are those for lumas from -128 to 127, so that
// they fit 32 bits. Levels are integers, so a slope is below both 255 · v / (v + eps) and 127.5 ·
// sqrt(v) / (v + eps), v being the variance: below 205.
struct LinearFit {
    int slope, offset;  // in units of 2**-16
};

constexpr int GUIDED_WIDTH = 640, GUIDED_HEIGHT = 120, GUIDED_COLUMNS = 4 * THREADS;
constexpr int GUIDED_BITS = 16, GUIDED_MIDDLE = 128;

__device__ __forceinline__ LinearFit* fits_of(const Item& item)
{
    return global<LinearFit>(item.scratch);
}

template <int C>
__device__ __forceinline__ uint2 light_and_colour4(const u8* row, int x, int colour)
{
    u32 words[C], plane[C];
    inner_pixels4<C>(row, x, words);
    deinterleave<C>(words, plane);
    u32 chosen = plane[0];
    for (int c = 1; c < C; ++c) chosen = c == colour ? plane[c] : chosen;
    return make_uint2(lumas4<C>(words), chosen);
}

__device__ __forceinline__ u32 light_at(const u8* pixel, int channels)
{
    return channels == 1 ? pixel[0] : luma(pixel[0], pixel[1], pixel[2]);
}

// Load the lumas and one colour of four pixels of a row, mirrored beyond its ends. The function is
// separate for the reason given at `replicated4`.
static __device__ __noinline__ uint2 guided4(
    const u8* row, int width, int channels, int x, int colour)
{
    if (x >= 0 && x + 4 <= width) {
        if (channels == 1) return light_and_colour4<1>(row, x, colour);
        if (channels == 3) return light_and_colour4<3>(row, x, colour);
        return light_and_colour4<4>(row, x, colour);
    }
    uint2 both = make_uint2(0, 0);
    for (int k = 0; k < 4; ++k) {
        const u8* pixel = row + mirrored(x + k, width) * channels;
        both.x |= light_at(pixel, channels) << 8 * k, both.y |= (u32)pixel[colour] << 8 * k;
    }
    return both;
}

// Column sums of lumas, of a colour, of squared lumas and of products of both.
struct Moments {
    u32 sums[4][4] = {};

    // Add a row, or subtract it with `times` = -1.
    __device__ __forceinline__ void add(const Item& item, int x, int y, int times)
    {
        const u8* row = source_row(item, mirrored(y, item.height));
        uint2 both = guided4(row, item.width, item.channels, x, item.step / 2);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            int light = byte_of(both.x, k), colour = byte_of(both.y, k), signed_ = times * light;
            sums[0][k] += signed_, sums[1][k] += times * colour;
            sums[2][k] += signed_ * light, sums[3][k] += signed_ * colour;
        }
    }
};

// Column sums of slopes and of offsets; `columns` are the places of the four columns in a row.
struct FitSums {
    i64 sums[2][4] = {};
    int columns[4];

    __device__ __forceinline__ FitSums(const Item& item, int x)
    {
        for (int k = 0; k < 4; ++k) columns[k] = mirrored(x + k, item.width);
    }

    __device__ __forceinline__ void add(const Item& item, int x, int y, int times)
    {
        const LinearFit* row = fits_of(item) + (i64)mirrored(y, item.height) * item.width;
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            uint2 fit = *(const uint2*)(row + columns[k]);
            sums[0][k] += (i64)times * (int)fit.x, sums[1][k] += (i64)times * (int)fit.y;
        }
    }
};

template <class T> struct __align__(16) Four {
    T at[4];
};

// Write, for N lines of a row's column sums, the sum before each column.
template <class T, int N>
__device__ __forceinline__ void sums_before(const T (*sums)[4], T* totals, Four<T>* before)
{
    T own[N], upto[N];
#pragma unroll
    for (int line = 0; line < N; ++line) {
        own[line] = sums[line][0] + sums[line][1] + sums[line][2] + sums[line][3];
        upto[line] = scan_warp(own[line]);
        if (threadIdx.x % 32 == 31) totals[line * (THREADS / 32) + threadIdx.x / 32] = upto[line];
    }
    __syncthreads();
#pragma unroll
    for (int line = 0; line < N; ++line) {
        T sum = before_thread(own[line], upto[line], totals + line * (THREADS / 32));
        Four<T> four;
        for (int k = 0; k < 4; ++k) four.at[k] = sum, sum += sums[line][k];
        before[line * THREADS + threadIdx.x] = four;
    }
    __syncthreads();
}

// Go down a tile and call `made(x, y, i)` for every pixel once `before` holds its row: the sum over
// a square is before[i + side] less before[i]. The next row is written only after all threads have
// passed the next barrier.
template <class T, int N, class Columns, class Made>
__device__ __forceinline__ void guided_rows(const Item& item, const Tile& tile, Columns& columns,
    T* totals, Four<T>* before, const Made& made)
{
    int radius = box_of(item).radius, x = tile.x - radius + 4 * threadIdx.x;
    bool mine = 4 * (int)threadIdx.x < tile.width + 2 * radius;
    for (int y = tile.y - radius; y < tile.y + tile.height + radius; ++y) {
        if (mine) columns.add(item, x, y, 1);
        if (y < tile.y + radius) continue;
        sums_before<T, N>(columns.sums, totals, before);
        for (int i = threadIdx.x; i < tile.width; i += THREADS) made(tile.x + i, y - radius, i);
        if (mine) columns.add(item, x, y - 2 * radius, -1);
    }
}

// floor(x + 0.5), in doubles.
__device__ __forceinline__ i64 nearest(double x) { return (i64)floor(x + 0.5); }

// Compute the line of a square from its sums. Products are below 2**53. An offset is never nearer
// to a half than 1 / (2 · area), so a product with the inverse rounds as the quotient does.
__device__ __forceinline__ LinearFit fit_line(const Guided& of, const u32* sums)
{
    i64 area = of.box.area, light = sums[0], colour = sums[1];
    i64 variance = area * sums[2] - light * light + of.spread;
    double slope = __ddiv_rn((double)(area * sums[3] - light * colour), (double)variance);
    i64 whole = nearest(slope * (1 << GUIDED_BITS));
    double offset = (double)((colour << GUIDED_BITS) - whole * light);
    offset *= __ddiv_rn(1.0, (double)area);
    return {(int)whole, (int)(nearest(offset) + GUIDED_MIDDLE * whole)};
}

extern "C" __global__ void __launch_bounds__(256, 4)
    guided_fit(const Item* items, const u32* starts, int n)
{
    __shared__ Four<u32> before[4 * THREADS];
    __shared__ u32 totals[4 * THREADS / 32];
    int block;
    Item item = find_item(items, starts, n, block);
    Guided of = *global<const Guided>(item.data);
    Tile tile = tile_of(item, block, GUIDED_WIDTH, GUIDED_HEIGHT);
    LinearFit* fits = fits_of(item);
    int side = 2 * of.box.radius + 1;
    Moments moments;
    guided_rows<u32, 4>(item, tile, moments, totals, before, [&](int x, int y, int i) {
        u32 sums[4];
        for (int line = 0; line < 4; ++line) {
            const u32* from = (const u32*)before + line * GUIDED_COLUMNS + i;
            sums[line] = from[side] - from[0];
        }
        LinearFit fit = fit_line(of, sums);
        *(uint2*)(fits + (i64)y * item.width + x) = make_uint2(fit.slope, fit.offset);
    });
}
LAUNCHED_BY_TILES(guided_fit, GUIDED_WIDTH, GUIDED_HEIGHT);

// Write the result, round(mean / 2**16). The sum is rounded to an integer first, which changes
// nothing: ((sum + 2**15) >> 16) + floor(area / 2) equals (sum + 2**15 · area) >> 16, because areas
// are odd.
extern "C" __global__ void __launch_bounds__(256, 4)
    guided_mean(const Item* items, const u32* starts, int n)
{
    __shared__ Four<i64> before[2 * THREADS];
    __shared__ i64 totals[2 * THREADS / 32];
    int block;
    Item item = find_item(items, starts, n, block);
    Box box = box_of(item);
    Tile tile = tile_of(item, block, GUIDED_WIDTH, GUIDED_HEIGHT);
    int side = 2 * box.radius + 1, colour = item.step / 2;
    FitSums fits(item, tile.x - box.radius + 4 * threadIdx.x);
    guided_rows<i64, 2>(item, tile, fits, totals, before, [&](int x, int y, int i) {
        const i64 *slopes = (const i64*)before + i, *offsets = slopes + GUIDED_COLUMNS;
        const u8* from = source_row(item, y) + x * item.channels;
        u8* to = global<u8>(item.dst) + ((i64)y * item.width + x) * item.channels;
        int light = (int)light_at(from, item.channels) - GUIDED_MIDDLE;
        i64 sum = (slopes[side] - slopes[0]) * light + offsets[side] - offsets[0];
        sum = (sum + (1 << (GUIDED_BITS - 1))) >> GUIDED_BITS;
        to[colour] = (u8)mean_of(box, (u32)min(max(sum, 0ll), 255ll * box.area));
        if (item.channels == 4 && colour == 0) to[3] = from[3];
    });
}
LAUNCHED_BY_TILES(guided_mean, GUIDED_WIDTH, GUIDED_HEIGHT);
