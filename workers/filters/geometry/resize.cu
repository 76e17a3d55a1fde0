// Pillow's resampling (Resample.c): weights of 22 bits (weights.cu), one axis after the other,
// rounded to bytes in between, RGBA premultiplied:
//
//     between = clip((sum of weight · sample + 2**21) >> 22)    out = the same over `between`
//
// A block makes 64 × 16 pixels of the result from a window of the source that moves:
//
//    rows first                           columns first
//    64 columns of the result             128 columns of the source
//    +----------------+                   +--------------------------+
//    | 32 rows of the |  moves down the   | 16 rows of the result    |  moves right through the
//    | source, already|  rows that the    | from columns already     |  columns that the tile needs
//    | 64 wide        |  tile needs       | resampled down           |
//    +----------------+                   +--------------------------+
//
// `rows` in shared memory holds the window; sums of the second axis stay in registers from window
// to window. First axis, rows first: thread t owns column t % 64 and four rows from 4 · (t / 64)
// on, 16 at a time. Second axis: thread t owns the words t, t + 256, … (C of them) of the result, 4
// samples each.
#include "filters/geometry/premultiplied.cuh"
#include "filters/geometry/resize.cuh"
#include "kernels/headers/common.cuh"

constexpr int RESIZE_WIDTH = 64, RESIZE_HEIGHT = 16;
constexpr int RESIZE_ROWS = 32, RESIZE_COLUMNS = 128;  // both windows take the same number of bytes

__device__ __forceinline__ u32 resize_byte(int sum) { return min(max(sum >> RESIZE_BITS, 0), 255); }

// Resample rows first … first + n - 1 of the source across, as wide as the tile, to shared memory;
// four rows at a time, so that a weight is read once for all of them.
template <int C>
__device__ __forceinline__ void resize_across(
    const Item& item, const Resize& of, const Tile& tile, int first, int n, u8* rows)
{
    constexpr int R = 4;
    const int* line = resize_line(item, of, 0);
    int x = tile.x + threadIdx.x % RESIZE_WIDTH, size = of.size[0];
    if (x >= size) return;
    int low = line[x], count = line[size + x];
    const int* weights = line + 2 * size + x;
    for (int row = threadIdx.x / RESIZE_WIDTH * R; row < n; row += THREADS / RESIZE_WIDTH * R) {
        const u8* from[R];
        int sums[R][C];
        for (int r = 0; r < R; ++r) {
            from[r] = source_row(item, first + row + r) + low * C;
            for (int c = 0; c < C; ++c) sums[r][c] = 1 << (RESIZE_BITS - 1);
        }
        for (int tap = 0; tap < count; ++tap) {
            int weight = weights[tap * size];
#pragma unroll
            for (int r = 0; r < R; ++r) {
                int samples[C];
                load_pixel<C>(from[r] + tap * C, of.method == NEAREST, samples);
                for (int c = 0; c < C; ++c) sums[r][c] += weight * samples[c];
            }
        }
        for (int r = 0; r < R; ++r)
            for (int c = 0; c < C; ++c)
                rows[((row + r) * RESIZE_WIDTH + threadIdx.x % RESIZE_WIDTH) * C + c] =
                    (u8)resize_byte(sums[r][c]);
    }
}

// Add what rows first … first + n - 1 contribute to the thread's words of the tile, four samples
// each.
template <int C>
__device__ __forceinline__ void resize_down(const Item& item, const Resize& of, const Tile& tile,
    int first, int n, const u32* rows, int sums[C][4])
{
    constexpr int PITCH = RESIZE_WIDTH / 4 * C;
    const int* line = resize_line(item, of, 1);
    int size = of.size[1];
#pragma unroll
    for (int i = 0; i < C; ++i) {
        int word = threadIdx.x + i * THREADS, y = word / PITCH;
        if (y >= tile.height) continue;
        int low = line[tile.y + y], end = min(low + line[size + tile.y + y], first + n);
        const int* weights = line + 2 * size + tile.y + y;
        for (int row = max(low, first); row < end; ++row) {
            u32 four = rows[(row - first) * PITCH + word % PITCH];
            int weight = weights[(row - low) * size];
            for (int k = 0; k < 4; ++k) sums[i][k] += weight * (int)byte_of(four, k);
        }
    }
}

// Resample columns of the source down, from `first` on, as high as the tile, to shared memory.
template <int C>
__device__ __forceinline__ void resize_columns(
    const Item& item, const Resize& of, const Tile& tile, int first, int n, u8* columns)
{
    const int* line = resize_line(item, of, 1);
    int size = of.size[1], bytes = item.width * C;
    for (int i = threadIdx.x; i < tile.height * RESIZE_COLUMNS; i += THREADS) {
        int x = i % RESIZE_COLUMNS, y = tile.y + i / RESIZE_COLUMNS;
        if (x >= n) continue;
        const u8* from = source_row(item, line[y]) + (first + x) * C;
        int sums[C], count = line[size + y];
        for (int c = 0; c < C; ++c) sums[c] = 1 << (RESIZE_BITS - 1);
        for (int tap = 0; tap < count; ++tap, from += bytes) {
            int samples[C], weight = line[(2 + tap) * size + y];
            load_pixel<C>(from, of.method == NEAREST, samples);
            for (int c = 0; c < C; ++c) sums[c] += weight * samples[c];
        }
        for (int c = 0; c < C; ++c) columns[i * C + c] = (u8)resize_byte(sums[c]);
    }
}

template <int C>
__device__ __forceinline__ void resize_rows(const Item& item, const Resize& of, const Tile& tile,
    int first, int n, const u8* columns, int sums[C][4])
{
    const int* line = resize_line(item, of, 0);
    int size = of.size[0];
#pragma unroll
    for (int i = 0; i < 4 * C; ++i) {
        int sample = (threadIdx.x + i / 4 * THREADS) * 4 + i % 4;
        int y = sample / (RESIZE_WIDTH * C), x = sample / C % RESIZE_WIDTH;
        if (x >= tile.width || y >= tile.height) continue;
        int low = line[tile.x + x], end = min(low + line[size + tile.x + x], first + n);
        const u8* row = columns + y * RESIZE_COLUMNS * C + sample % C;
        for (int at = max(low, first); at < end; ++at)
            sums[i / 4][i % 4] +=
                line[(2 + at - low) * size + tile.x + x] * (int)row[(at - first) * C];
    }
}

template <int C>
__device__ __forceinline__ void resize_by_rows(
    const Item& item, const Resize& of, const Tile& tile, u32* rows, int sums[C][4])
{
    const int* down = resize_line(item, of, 1);
    int last = tile.y + tile.height - 1, end = down[last] + down[of.size[1] + last];
    for (int first = down[tile.y]; first < end; first += RESIZE_ROWS) {
        int n = min(RESIZE_ROWS, end - first);
        resize_across<C>(item, of, tile, first, n, (u8*)rows);
        __syncthreads();
        resize_down<C>(item, of, tile, first, n, rows, sums);
        __syncthreads();
    }
}

template <int C>
__device__ __forceinline__ void resize_by_columns(
    const Item& item, const Resize& of, const Tile& tile, u8* columns, int sums[C][4])
{
    const int* across = resize_line(item, of, 0);
    int last = tile.x + tile.width - 1, end = across[last] + across[of.size[0] + last];
    for (int first = across[tile.x]; first < end; first += RESIZE_COLUMNS) {
        int n = min(RESIZE_COLUMNS, end - first);
        resize_columns<C>(item, of, tile, first, n, columns);
        __syncthreads();
        resize_rows<C>(item, of, tile, first, n, columns, sums);
        __syncthreads();
    }
}

template <int C>
__device__ __forceinline__ void resize_tile(
    const Item& item, const Resize& of, const Tile& tile, u32* rows, u32* out)
{
    int sums[C][4];
    for (int i = 0; i < C; ++i)
        for (int k = 0; k < 4; ++k) sums[i][k] = 1 << (RESIZE_BITS - 1);
    if (of.columns_first) resize_by_columns<C>(item, of, tile, (u8*)rows, sums);
    else resize_by_rows<C>(item, of, tile, rows, sums);
    for (int i = 0; i < C; ++i) {
        u32 bytes[4];
        for (int k = 0; k < 4; ++k) bytes[k] = resize_byte(sums[i][k]);
        u32 word = packed(bytes[0], bytes[1], bytes[2], bytes[3]);
        out[threadIdx.x + i * THREADS] = C == 4 && of.method != NEAREST ? divided(word) : word;
    }
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(256)
    resize(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 rows[RESIZE_WIDTH * RESIZE_ROWS / 4],
        out[RESIZE_WIDTH * RESIZE_HEIGHT / 4 + 1];
    int block;
    Item item = find_item(items, starts, n, block), made = item;
    const Resize& of = *global<const Resize>(item.data);
    made.width = of.size[0], made.height = of.size[1];
    Tile tile = tile_of(made, block, RESIZE_WIDTH, RESIZE_HEIGHT);
    if (item.channels == 1) resize_tile<1>(item, of, tile, (u32*)rows, (u32*)out);
    else if (item.channels == 3) resize_tile<3>(item, of, tile, (u32*)rows, (u32*)out);
    else resize_tile<4>(item, of, tile, (u32*)rows, (u32*)out);
    store_tile_of<RESIZE_WIDTH>(made, tile, (const u8*)out);
}
LAUNCHED_BY_TILES(resize, RESIZE_WIDTH, RESIZE_HEIGHT);
