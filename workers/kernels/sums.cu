// Box blur of large radii without alpha: running sums as in box.cu, four columns a thread and ROWS
// rows between barriers. A row's sample leaves as its complement, so that adding is all there is:
// every column's sum is 255 too much for each row, which the means know.

constexpr int SUMS_WIDTH = 512, SUMS_HEIGHT = 360, SUMS_WORDS = 6 * 4 * THREADS;

// An image of less than four columns, made four wide in its scratch. Every block of it does the same.
static __device__ __noinline__ void widen(const Item& item)
{
    int c = item.channels;
    u8* to = global<u8>(item.scratch);
    for (u32 i = threadIdx.x; i < 4u * c * item.height; i += THREADS)
        to[i] = source_row(item, i / (4 * c))[min(i % (4 * c) / c, item.width - 1u) * c + i % c];
    __syncthreads();
}

// Where four pixels of every row of at least four are: their words as they lie in memory, and which
// pixel is which.
template <int C> struct Quad {
    int first;  // the pixel that is loaded first
    u32 order;  // of the pixels asked for among those loaded

    __device__ __forceinline__ Quad(int x, int width)
    {
        first = clamped(x, width - 3), order = 0;
        for (int k = 0; k < 4; ++k) order |= (clamped(x + k, width) - first) << 4 * k;
    }

    __device__ __forceinline__ void load(const Item& item, int y, u32* words) const
    {
        const u8* at = source_row(item, y) + first * C;
        u32 over = (u64)at & 3;
        const u32* from = (const u32*)(at - over);
        for (int c = 0; c < C; ++c) words[c] = from[c];
        words[C] = over ? from[C] : 0;
    }

    // Of the same row, a word for each channel.
    __device__ __forceinline__ void planes(const Item& item, int y, const u32* words, u32* plane) const
    {
        u32 over = (u64)(source_row(item, y) + first * C) & 3, in[C];
        for (int c = 0; c < C; ++c) in[c] = __funnelshift_r(words[c], words[c + 1], 8 * over);
        deinterleave<C>(in, plane);
        for (int c = 0; c < C; ++c) plane[c] = __byte_perm(plane[c], 0, order);
    }

    __device__ __forceinline__ void add(
        const Item& item, int y, const u32* words, u32 flip, u32 (*sums)[4]) const
    {
        u32 plane[C];
        planes(item, y, words, plane);
#pragma unroll
        for (int c = 0; c < C; ++c)
#pragma unroll
            for (int k = 0; k < 4; ++k) sums[c][k] = __dp4a(plane[c] ^ flip, 1u << 8 * k, sums[c][k]);
    }
};

// What a row adds and what it loses, on their way from memory.
template <int C> struct Change {
    u32 fresh[C + 1], old[C + 1];

    __device__ __forceinline__ void load(const Item& item, const Quad<C>& quad, int y, int radius)
    {
        quad.load(item, y + radius, fresh);
        quad.load(item, y - radius - 1, old);
    }

    __device__ __forceinline__ void apply(
        const Item& item, const Quad<C>& quad, int y, int radius, u32 (*sums)[4]) const
    {
        quad.add(item, y + radius, fresh, 0, sums);
        quad.add(item, y - radius - 1, old, ~0u, sums);
    }
};

// Sums of lines of totals become the sums before each; a warp a line.
template <int N> __device__ __forceinline__ void scan_totals(u32* totals, int lines)
{
    constexpr int EACH = N / 32;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp >= lines) return;
    u32 *line = totals + warp * N + lane * EACH, own[EACH], sum = 0;
    for (int i = 0; i < EACH; i += 4) load16((const u8*)(line + i), own + i);
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        u32 next = sum + own[i];
        own[i] = sum, sum = next;
    }
    u32 before = scan_warp(sum) - sum;
    for (int i = 0; i < EACH; ++i) own[i] += before;
    for (int i = 0; i < EACH; i += 4) store16((u8*)(line + i), own + i);
}

// (sum + area / 2) / area by a 32-bit multiplication.
struct Division {
    u32 inverse, shift;

    __device__ __forceinline__ Division(const Box& box)
    {
        shift = 31 - __clz(box.area);
        inverse = (u32)(box.inverse >> (31 - shift)) + 1;
    }

    __device__ __forceinline__ u32 operator()(u32 n) const { return __umulhi(n, inverse) >> shift; }
};

// Means of ROWS rows of the tile. The sum before a column is that before its quad, in `quads`, and
// that of columns of the quad, which lie as [row][channel][column % 4][quad].
template <int C, int ROWS, int QUADS>
__device__ __forceinline__ void mean_rows(
    const Box& box, int width, int done, const u32* before, const u32* quads, u32* lines)
{
    Division divided(box);
    int side = 2 * box.radius + 1, over = side & 3, quads_on = side >> 2;
    for (int i = threadIdx.x; i < ROWS * (SUMS_WIDTH / 4); i += THREADS) {
        int row = i / (SUMS_WIDTH / 4), quad = i % (SUMS_WIDTH / 4);
        if (4 * quad >= width) continue;
        u32 half = box.area / 2 - 255u * side * (done + row + 1), plane[C];
#pragma unroll
        for (int c = 0; c < C; ++c) {
            const u32* whole = quads + (row * C + c) * QUADS + quad;
            const u32* from = before + (row * C + c) * 4 * QUADS + quad;
            u32 near = whole[quads_on] - whole[0] + half, far = whole[quads_on + 1] - whole[0] + half, mean[4];
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                int after = ((k + over) & 3) * QUADS + quads_on + (k + over >= 4);
                mean[k] = divided(from[after] - from[k * QUADS] + (k + over >= 4 ? far : near));
            }
            plane[c] = packed(mean[0], mean[1], mean[2], mean[3]);
        }
        interleave<C>(plane, lines + (row * (SUMS_WIDTH / 4) + quad) * C);
    }
}

// G quads of columns a thread.
template <int C, int ROWS, int G>
__device__ __forceinline__ void box_plain(
    const Item& item, const Tile& tile, u32* before, u32* totals, u32* lines)
{
    constexpr int QUADS = G * THREADS;
    Item source = item;
    if (item.width < 4) {
        widen(item);
        source.src = item.scratch, source.width = 4;
    }
    Box box = box_of(item);
    int radius = box.radius, x = tile.x - radius + 4 * threadIdx.x;
    int mine = (tile.width + 2 * radius) / 4 + 1 - threadIdx.x;  // quads that are used
    Quad<C> quads[2] = {{x, source.width}, {x + 4 * THREADS, source.width}};
    u32 sums[G][C][4] = {};
    for (int y = tile.y - 1 - radius; y < tile.y + radius; ++y)
#pragma unroll
        for (int g = 0; g < G; ++g) {
            u32 words[C + 1];
            if (g * THREADS >= mine) continue;
            quads[g].load(source, y, words);
            quads[g].add(source, y, words, 0, sums[g]);
        }
    Change<C> changes[ROWS][G];
    for (int row = 0; row < ROWS; ++row)
        for (int g = 0; g < G; ++g)
            if (g * THREADS < mine) changes[row][g].load(source, quads[g], tile.y + row, radius);
    for (int done = 0; done < tile.height; done += ROWS) {
#pragma unroll
        for (int row = 0; row < ROWS; ++row)
#pragma unroll
            for (int g = 0; g < G; ++g) {
                int y = tile.y + done + row;
                if (g * THREADS >= mine) continue;
                changes[row][g].apply(source, quads[g], y, radius, sums[g]);
                changes[row][g].load(source, quads[g], y + ROWS, radius);
#pragma unroll
                for (int c = 0; c < C; ++c) {
                    int line = row * C + c, quad = g * THREADS + threadIdx.x;
                    u32 sum = 0;
#pragma unroll
                    for (int k = 0; k < 4; ++k) {
                        before[(line * 4 + k) * QUADS + quad] = sum;
                        sum += sums[g][c][k];
                    }
                    totals[line * QUADS + quad] = sum;
                }
            }
        __syncthreads();
        scan_totals<QUADS>(totals, ROWS * C);
        __syncthreads();
        mean_rows<C, ROWS, QUADS>(box, tile.width, done, before, totals, lines);
        __syncthreads();
        Tile made = {tile.x, tile.y + done, tile.width, min(ROWS, tile.height - done)};
        store_tile<SUMS_WIDTH * C>(item, made, (const u8*)lines);
    }
}

extern "C" __global__ void __launch_bounds__(256, 3)
box_sums(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 before[SUMS_WORDS / 4], totals[6 * THREADS / 4], lines[2 * SUMS_WIDTH * 3 / 16 + 1];
    int block;
    Item item = owner(items, starts, n, block);
    Tile tile = tile_of(item, block, SUMS_WIDTH, SUMS_HEIGHT);
    u32 *b = (u32*)before, *t = (u32*)totals, *l = (u32*)lines;
    bool narrow = box_of(item).radius < 256;
    if (item.channels == 1) narrow ? box_plain<1, 2, 1>(item, tile, b, t, l) : box_plain<1, 1, 2>(item, tile, b, t, l);
    else narrow ? box_plain<3, 2, 1>(item, tile, b, t, l) : box_plain<3, 1, 2>(item, tile, b, t, l);
}
