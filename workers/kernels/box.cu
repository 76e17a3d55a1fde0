// Box blur of any radius in one pass: a block goes down its tile with a running sum for every
// column; prefix sums along each row make sums of squares. The radius costs only its border.

struct Box {
    int radius, area;  // area: the square of 2 · radius + 1
    u64 inverse;       // floor(2**64 / (2 · area)) + 1
};

constexpr int BOX_WIDTH = 512, BOX_HEIGHT = 128, BOX_COLUMNS = BOX_WIDTH + 1008;

__device__ __forceinline__ const Box& box_of(const Item& item) { return *global<const Box>(item.data); }

// (2 · sum + area) / (2 · area) by a multiplication: exact, for numerator times divisor < 2**64.
__device__ __forceinline__ u32 mean_of(const Box& box, u32 sum)
{
    u32 n = 2 * sum + box.area;
    return (u32)(((u64)n * (u32)(box.inverse >> 32) + __umulhi(n, (u32)box.inverse)) >> 32);
}

// Four pixels of a row, added to the sums of their columns or taken away.
template <int C, bool ADD>
__device__ __forceinline__ void move_sums(const Item& item, int x, int y, u32 (*sums)[4])
{
    u32 plane[C];
    pixels4<C>(source_row(item, y), item.width, x, plane);
#pragma unroll
    for (int c = 0; c < C; ++c)
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            u32 sample = byte_of(plane[c], k);
            if (C == 4 && c < 3) sample *= byte_of(plane[C - 1], k);
            sums[c][k] = ADD ? sums[c][k] + sample : sums[c][k] - sample;
        }
}

// The running sums of G · 4 columns from x on, for every channel; with alpha, of premultiplied ones.
template <int C, int G> struct Columns {
    u32 sums[G][C][4];

    __device__ __forceinline__ void fill(const Item& item, int x, int y, int radius)
    {
#pragma unroll
        for (int g = 0; g < G; ++g)
#pragma unroll
            for (int c = 0; c < C; ++c)
#pragma unroll
                for (int k = 0; k < 4; ++k) sums[g][c][k] = 0;
        for (int row = -radius; row <= radius; ++row)
#pragma unroll
            for (int g = 0; g < G; ++g) move_sums<C, true>(item, x + 4 * g, y + row, sums[g]);
    }

    __device__ __forceinline__ void advance(const Item& item, int x, int y, int radius)
    {
#pragma unroll
        for (int g = 0; g < G; ++g) {
            move_sums<C, true>(item, x + 4 * g, y + radius, sums[g]);
            move_sums<C, false>(item, x + 4 * g, y - radius - 1, sums[g]);
        }
    }

    template <class T> __device__ __forceinline__ T total(int c) const
    {
        T sum = 0;
#pragma unroll
        for (int g = 0; g < G; ++g)
#pragma unroll
            for (int k = 0; k < 4; ++k) sum += sums[g][c][k];
        return sum;
    }

    // The sums before each of the columns, from `before` the first one on.
    template <class T> __device__ __forceinline__ void prefix(int c, T before, T* to) const
    {
#pragma unroll
        for (int g = 0; g < G; ++g)
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                to[4 * g + k] = before;
                before += sums[g][c][k];
            }
    }
};

__device__ __forceinline__ void store_row(const Item& item, const Tile& tile, int row, const u8* from)
{
    i64 pixel = (i64)(tile.y + row) * item.width + tile.x;
    u8* line = global<u8>(item.dst) + pixel * item.channels;
    int bytes = tile.width * item.channels;
    for (int at = 4 * threadIdx.x - (int)((u64)line & 3); at < bytes; at += 4 * THREADS)
        store4(line, from, at, bytes);
}

template <int C, int G>
__device__ __forceinline__ void box_plain(
    const Item& item, const Tile& tile, u32* prefix, u32* totals, u8* line)
{
    Box box = box_of(item);
    int first = 4 * G * threadIdx.x, x = tile.x - box.radius + first, side = 2 * box.radius + 1;
    bool mine = first <= tile.width + 2 * box.radius;
    Columns<C, G> columns = {};
    if (mine) columns.fill(item, x, tile.y, box.radius);
    for (int row = 0; row < tile.height; ++row) {
        if (mine && row) columns.advance(item, x, tile.y + row, box.radius);
        u32 own[C], upto[C];
#pragma unroll
        for (int c = 0; c < C; ++c) {
            own[c] = columns.template total<u32>(c);
            upto[c] = scan_warp(own[c]);
            if (threadIdx.x % 32 == 31) totals[c * 8 + threadIdx.x / 32] = upto[c];
        }
        __syncthreads();
        if (mine)
#pragma unroll
            for (int c = 0; c < C; ++c)
                columns.prefix(c, before_thread(own[c], upto[c], totals + 8 * c),
                               prefix + c * BOX_COLUMNS + first);
        __syncthreads();
        for (int i = threadIdx.x; i < tile.width; i += THREADS)
            for (int c = 0; c < C; ++c) {
                const u32* at = prefix + c * BOX_COLUMNS + i;
                line[i * C + c] = (u8)mean_of(box, at[side] - at[0]);
            }
        __syncthreads();
        store_row(item, tile, row, line);
    }
}

// With alpha, channel after channel, alpha first: its sums are what colours are divided by.
template <int G>
__device__ __forceinline__ void box_alpha(
    const Item& item, const Tile& tile, u64* prefix, u64* totals, u8* line)
{
    Box box = box_of(item);
    int first = 4 * G * threadIdx.x, x = tile.x - box.radius + first, side = 2 * box.radius + 1;
    bool mine = first <= tile.width + 2 * box.radius;
    Columns<4, G> columns = {};
    if (mine) columns.fill(item, x, tile.y, box.radius);
    for (int row = 0; row < tile.height; ++row) {
        if (mine && row) columns.advance(item, x, tile.y + row, box.radius);
        u64 weight[BOX_WIDTH / THREADS];
#pragma unroll
        for (int c = 3; c >= 0; --c) {
            u64 own = columns.template total<u64>(c), upto = scan_warp(own);
            if (threadIdx.x % 32 == 31) totals[threadIdx.x / 32] = upto;
            __syncthreads();
            if (mine) columns.prefix(c, before_thread(own, upto, totals), prefix + first);
            __syncthreads();
            for (int k = 0; k < BOX_WIDTH / THREADS; ++k) {
                int i = threadIdx.x + k * THREADS;
                if (i >= tile.width) break;
                u64 sum = prefix[i + side] - prefix[i];
                u8* pixel = line + 4 * i;
                if (c == 3) weight[k] = sum, pixel[3] = (u8)mean_of(box, (u32)sum);
                else pixel[c] = pixel[3] ? (u8)quotient(2 * sum + weight[k], 2 * weight[k]) : 0;
            }
        }
        __syncthreads();
        store_row(item, tile, row, line);
    }
}

template <int G>
__device__ __forceinline__ void box_tile(
    const Item& item, const Tile& tile, u64* prefix, u64* totals, u8* line)
{
    if (item.channels == 1) box_plain<1, G>(item, tile, (u32*)prefix, (u32*)totals, line);
    else if (item.channels == 3) box_plain<3, G>(item, tile, (u32*)prefix, (u32*)totals, line);
    else box_alpha<G>(item, tile, prefix, totals, line);
}

extern "C" __global__ void __launch_bounds__(256, 3)
box_blur(const Item* items, const u32* starts, int n)
{
    __shared__ u64 prefix[BOX_COLUMNS * 3 / 2], totals[16];
    __shared__ u32 line[BOX_WIDTH + 1];
    int block;
    Item item = owner(items, starts, n, block);
    Tile tile = tile_of(item, block, BOX_WIDTH, BOX_HEIGHT);
    if (box_of(item).radius < 256) box_tile<1>(item, tile, prefix, totals, (u8*)line);
    else box_tile<2>(item, tile, prefix, totals, (u8*)line);
}
