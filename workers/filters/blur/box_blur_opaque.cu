// Box blur without alpha, of any radius, in one pass by running sums (M. J. McDonnell,
// "Box-filtering techniques", Computer Graphics and Image Processing 17, 1981):
//
//     out = floor((sum over the square of 2 · radius + 1 + area / 2) / area)
//
// A block goes down its tile. Thread t keeps the column sums of quad t, four columns from tile.x -
// radius + 4 · t on, in registers (with G = 2 those of quad t + 256, too); a row enters and one
// leaves (column_running_sums.cuh). A warp adds up the columns of its own quads; the rest of a
// square is in the totals of the warps between its sides.
//
//  warp 0          warp 1          warp 2             before[c][k][quad]: sum of the columns of the
//  | q0 … q31      | q32 … q63     | q64 …            same warp before column k of the quad
//    ^ first column of a square         ^ end         totals[warp][c]: sum of all its columns
//    before(end) + totals of the warps between - before(first)
//
// Shared memory has room for two rows of sums, used in turn, so that a row needs one barrier.
// Thread t makes the pixels tile.x + 4 · t … + 3 of the row.
#include "filters/arithmetic/box.cuh"
#include "filters/blur/column_running_sums.cuh"
#include "kernels/headers/common.cuh"
#include "kernels/headers/pixels.cuh"
#include "kernels/headers/scan.cuh"

constexpr int MOST_WARPS = 16;
constexpr int SUMS_LINE = THREADS + 64;  // quads before which squares may end, and 64 more

// Tiles for radii below `radii`: a thread has a quad of columns, or two where squares are too
// large.
struct BoxTiles {
    int radii, width, height;
};
constexpr BoxTiles BOX_TILES[] = {
    {32, 960, 180}, {192, 640, 270}, {256, 512, 360}, {501, 960, 270}};

__device__ __forceinline__ Tile sums_tile(const Item& item, int block, int radius)
{
    constexpr BoxTiles A = BOX_TILES[0], B = BOX_TILES[1], C = BOX_TILES[2], D = BOX_TILES[3];
    if (radius < A.radii) return tile_of(item, block, A.width, A.height);
    if (radius < B.radii) return tile_of(item, block, B.width, B.height);
    if (radius < C.radii) return tile_of(item, block, C.width, C.height);
    return tile_of(item, block, D.width, D.height);
}

// Division by the area: floor((sum + area / 2) / area) by a 32-bit multiplication, whose quotient
// is one of the bytes of the upper word. An area of 1 has no 32-bit inverse; with 1 added to the
// sum, 2**32 - 1 serves as one.
struct AreaDivision {
    u32 inverse, half, places;  // places: which bytes of two words are quotients

    __device__ __forceinline__ explicit AreaDivision(const Box& box)
    {
        int byte = (box.radius >= 8) + (box.radius >= 128);
        inverse = box.radius ? (u32)(box.inverse >> (31 - 8 * byte)) + 1 : ~0u;
        half = max(box.area / 2, 1), places = 0x40 + 0x11 * byte;
    }

    __device__ __forceinline__ u32 operator()(const u32* sums) const
    {
        u32 means[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) means[k] = __umulhi(sums[k], inverse);
        u32 two = __byte_perm(means[0], means[1], places),
            four = __byte_perm(means[2], means[3], places);
        return __byte_perm(two, four, 0x5410);
    }
};

// The sums of one row: before each column the sum of the columns of the same warp, as
// [channel][column % 4][quad], and the totals of whole warps.
template <int C> struct SumsRow {
    u32 before[C * 4 * SUMS_LINE], totals[4 * MOST_WARPS];

    // Put a quad's column sums into the row; `first` becomes the sums before the quad. Squares end
    // only before quads from `needed` on.
    __device__ __forceinline__ void put(
        const ColumnSums<C>& columns, int quad, int needed, u32* first)
    {
        u32 own[C], upto[C];
#pragma unroll
        for (int c = 0; c < C; ++c) {
            const u32* sums = columns.sums + c;
            upto[c] = own[c] = sums[0] + sums[C] + sums[2 * C] + sums[3 * C];
        }
#pragma unroll
        for (int step = 1; step < 32; step *= 2)
#pragma unroll
            for (int c = 0; c < C; ++c) add_lower(upto[c], step);
        for (int c = 0; c < C; ++c) first[c] = upto[c] - own[c];
        if ((quad | 31) >= needed && (quad & ~31) <= needed + THREADS) {
            u32* to = before + 32 + quad - needed;
#pragma unroll
            for (int c = 0; c < C; ++c) {
                u32 sum = first[c];
                for (int k = 0; k < 4; ++k) {
                    to[(c * 4 + k) * SUMS_LINE] = sum;
                    sum += columns.sums[C * k + c];
                }
            }
        }
        if (threadIdx.x % 32 == 31)
            for (int c = 0; c < C; ++c) totals[quad / 32 * 4 + c] = upto[c];
    }
};

// How a square extends over the columns of warps.
struct SquareSide {
    int length, quads, warps;
    // A mask of ones where the quad in which the square ends (`near`), or the quad behind it
    // (`far`), belongs to one warp further; else 0.
    u32 near, far;

    __device__ __forceinline__ explicit SquareSide(int radius)
        : length(2 * radius + 1),
          quads(length >> 2),
          warps(quads / 32)
    {
        int lane = threadIdx.x % 32 + quads % 32;
        near = lane >= 32 ? ~0u : 0, far = lane >= 31 ? ~0u : 0;
    }
};

// Compute the means of four pixels; `half` rounds them. OVER is the length of a side modulo 4.
template <int OVER, int C>
__device__ __forceinline__ void means4(const SumsRow<C>& row, const ColumnSums<C>& columns,
    const u32* first, const SquareSide& side, const AreaDivision& divided, u32 half, u32* pixels)
{
    const u32 *totals = row.totals + threadIdx.x / 32 * 4, *before = row.before + 32 + threadIdx.x;
    u32 between[C], further[4], plane[C];
    for (int c = 0; c < C; ++c) between[c] = half - first[c];
#pragma unroll 1
    for (int i = 0; i < side.warps; ++i, totals += 4) {
        load16((const u8*)totals, further);
        for (int c = 0; c < C; ++c) between[c] += further[c];
    }
    load16((const u8*)totals, further);
#pragma unroll
    for (int c = 0; c < C; ++c) {
        u32 near = further[c] & side.near, far = further[c] & side.far, sum = between[c], sums[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            bool next = k + OVER >= 4;
            u32 after = before[(c * 4 + ((k + OVER) & 3)) * SUMS_LINE + next];
            sums[k] = after + sum + (next ? far : near);
            sum -= columns.sums[C * k + c];
        }
        plane[c] = divided(sums);
    }
    interleave<C>(plane, pixels);
}

// Store a warp's part of a row of results from shared memory where rows are not aligned to 16
// bytes.
static __device__ __noinline__ void store_words(u8* line, const u8* from, int bytes)
{
    int over = (u64)line & 3;
    for (int i = threadIdx.x % 32; 4 * i < bytes + 4; i += 32)
        store4(line, from, 4 * i - over, bytes);
}

// Compute a tile with G quads of columns a thread. The thread's pixels belong to the first of them.
template <int C, int G>
__device__ __forceinline__ void box_opaque_tile(
    const Item& item, const Tile& tile, void* row_buffers, uint4 (*parts)[25])
{
    Item source = item;
    if (item.width < 4) {
        widen_narrow_image(item);
        source.src = item.scratch, source.width = 4;
    }
    Box box = box_of(item);
    AreaDivision divided(box);
    SquareSide side(box.radius);
    int radius = box.radius, x = tile.x - radius + 4 * threadIdx.x;
    int mine = (tile.width + 2 * radius) / 4 + 1 - threadIdx.x;  // quads that are used
    QuadPlace<C> quads[2] = {{x, source.width}, {x + 4 * THREADS, source.width}};  // G are used
    RowReader<C> fresh[2] = {
        {source, quads[0], tile.y + radius}, {source, quads[1], tile.y + radius}};
    RowReader<C> old[2] = {
        {source, quads[0], tile.y - radius - 1}, {source, quads[1], tile.y - radius - 1}};
    ColumnSums<C> columns[G];
#pragma unroll
    for (int g = 0; g < G; ++g) {
        if (g * THREADS >= mine) continue;
        RowReader<C> walk = old[g];
#pragma unroll 4
        for (int row = 0; row < side.length; ++row) {
            u32 pixels[C];
            walk.load();
            walk.pixels(pixels);
            walk.step(source);
            if (!quads[g].within()) quads[g].replicate(pixels);
            columns[g].add(pixels);
        }
        fresh[g].load(), old[g].load();
    }
    u32* part = (u32*)parts[threadIdx.x / 32];
    int own = threadIdx.x / 32 * 128 * C, bytes = min(tile.width * C - own, 128 * C),
        lane = threadIdx.x % 32;
    u32 stride = item.width * C;
    u8* first_line = global<u8>(item.dst) + (u64)tile.y * stride + tile.x * C + own;
    u32 half = divided.half;
    for (u32 y = 0; y < tile.height; ++y) {
        SumsRow<C>& row =
            ((SumsRow<C>*)row_buffers)[y % 2];  // other threads may still read the last row
        u32 first[G][C];
#pragma unroll
        for (int g = 0; g < G; ++g) {
            if (g * THREADS < mine) {
                u32 in[C], out[C];
                fresh[g].pixels(in), old[g].pixels(out);
                fresh[g].step(source), old[g].step(source);
                fresh[g].load(), old[g].load();
                if (!quads[g].within()) quads[g].replicate(in), quads[g].replicate(out);
                columns[g].exchange(in, out);
            }
            row.put(columns[g], g * THREADS + threadIdx.x, side.quads, first[g]);
        }
        __syncthreads();
        half -= 255 * side.length;  // every row leaves 255 too much in each column's sum
        if (bytes > 0) {
            if (side.length & 2)
                means4<3>(row, columns[0], first[0], side, divided, half, part + lane * C);
            else means4<1>(row, columns[0], first[0], side, divided, half, part + lane * C);
            __syncwarp();
            u8* line = first_line + (u64)y * stride;
            if (stride % 16) store_words(line, (const u8*)part, bytes);
            else if (16 * lane < bytes) ((uint4*)line)[lane] = ((const uint4*)part)[lane];
        }
    }
}

template <int G>
__device__ __forceinline__ void box_opaque_block(const Item* items, const u32* starts, int n)
{
    __shared__ __align__(16) SumsRow<3> row_buffers[2];
    __shared__ uint4 parts[8][25];
    int block;
    Item item = find_item(items, starts, n, block);
    Tile tile = sums_tile(item, block, box_of(item).radius);
    if (item.channels == 1) box_opaque_tile<1, G>(item, tile, row_buffers, parts);
    else box_opaque_tile<3, G>(item, tile, row_buffers, parts);
}

extern "C" __global__ void __launch_bounds__(256, 3)
    box_blur_opaque(const Item* items, const u32* starts, int n)
{
    box_opaque_block<1>(items, starts, n);
}

extern "C" __global__ void __launch_bounds__(256, 2)
    box_blur_opaque_wide(const Item* items, const u32* starts, int n)
{
    box_opaque_block<2>(items, starts, n);
}
