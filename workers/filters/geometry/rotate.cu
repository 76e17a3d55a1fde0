// Pillow's rotation by any angle (Geometry.c): the middle of each pixel of the result is mapped to
// the source, and interpolated between the pixels there in doubles, in Pillow's order of operations.
#include "filters/geometry/premultiplied.cuh"
#include "kernels/headers/common.cuh"

constexpr int ROTATED_WIDTH = 64, ROTATED_HEIGHT = 16;

struct Rotate {
    double matrix[6];   // from a place in the result to one in the source: across, then down
    int width, height;  // of the result
    u32 background;     // where the result shows no source; premultiplied
    int bicubic;        // or bilinear
    int straight;       // all samples only move, so that colours are not premultiplied
};

// Return the value `d` of the way from the second to the third of four values, or between two.
template <int N> __device__ __forceinline__ double between(const double* v, double d)
{
    if constexpr (N == 2) return v[0] + (v[1] - v[0]) * d;
    double p2 = v[2] - v[0], p3 = 2 * (v[0] - v[1]) + v[2] - v[3];
    double p4 = v[1] - v[0] - v[2] + v[3];
    return v[1] + d * (p2 + d * (p3 + d * p4));
}

// Interpolate between N × N pixels around a place in the source; those beyond its ends replicate.
template <int C, int N>
__device__ __forceinline__ u32 interpolated(const Item& item, bool straight, double x, double y)
{
    int column = (int)floor(x), row = (int)floor(y), first = 1 - N / 2;
    double lines[C][N];
    for (int r = 0; r < N; ++r) {
        const u8* from = source_row(item, row + first + r);
        double values[C][N];
        for (int k = 0; k < N; ++k) {
            int samples[C];
            load_pixel<C>(from + clamped(column + first + k, item.width) * C, straight, samples);
            for (int c = 0; c < C; ++c) values[c][k] = samples[c];
        }
        for (int c = 0; c < C; ++c) lines[c][r] = between<N>(values[c], x - column);
    }
    u32 pixel = 0;
    for (int c = 0; c < C; ++c)
        pixel |= (u32)min(max(between<N>(lines[c], y - row), 0.0), 255.0) << 8 * c;
    return pixel;
}

template <int C>
__device__ __forceinline__ void rotated_tile(
    const Item& item, const Rotate& of, const Tile& tile, u8* out)
{
    const double* m = of.matrix;
    for (int i = threadIdx.x; i < ROTATED_WIDTH * ROTATED_HEIGHT; i += THREADS) {
        double across = tile.x + i % ROTATED_WIDTH + 0.5, down = tile.y + i / ROTATED_WIDTH + 0.5;
        double x = m[0] * across + m[1] * down + m[2], y = m[3] * across + m[4] * down + m[5];
        u32 pixel = of.background;
        if (x >= 0 && x < item.width && y >= 0 && y < item.height)
            pixel = of.bicubic ? interpolated<C, 4>(item, of.straight, x - 0.5, y - 0.5)
                               : interpolated<C, 2>(item, of.straight, x - 0.5, y - 0.5);
        if (C == 4 && !of.straight) pixel = divided(pixel);
        for (int c = 0; c < C; ++c) out[i * C + c] = byte_of(pixel, c);
    }
}

extern "C" __global__ void __launch_bounds__(256)
    rotate(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 out[ROTATED_WIDTH * ROTATED_HEIGHT / 4 + 1];
    int block;
    Item item = find_item(items, starts, n, block), made = item;
    const Rotate& of = *global<const Rotate>(item.data);
    made.width = of.width, made.height = of.height;
    Tile tile = tile_of(made, block, ROTATED_WIDTH, ROTATED_HEIGHT);
    if (item.channels == 1) rotated_tile<1>(item, of, tile, (u8*)out);
    else if (item.channels == 3) rotated_tile<3>(item, of, tile, (u8*)out);
    else rotated_tile<4>(item, of, tile, (u8*)out);
    __syncthreads();
    store_tile_of<ROTATED_WIDTH>(made, tile, (const u8*)out);
}
LAUNCHED_BY_TILES(rotate, ROTATED_WIDTH, ROTATED_HEIGHT);
