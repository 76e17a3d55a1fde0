// Tell whether the entropy-coded data of baseline JPEGs hold exactly their blocks. Decode engines
// do not tell: they stop where data are missing, and show pixels of an earlier image there.
//
// Nothing but decoding all codes shows where a block ends. One block of threads decodes one file.
// Each thread takes a piece of the data, and first assumes that its piece begins with a code of a
// first block. It then stands in the middle of something else, but codes have various lengths, and
// after some of them it meets the true sequence, as Huffman codes synchronise themselves. So each
// thread repeats its piece from the place where the thread before it has ended, until no place
// changes any more; the ends are then those of one decoder that began at the first byte, because
// the first thread did (Weißenberger and Schmidt, 2018, "Massively parallel Huffman decoding on
// GPUs", https://doi.org/10.1145/3225058.3225076). Of 196 photos half need two rounds, and nine of
// ten need eight; large flat areas need more. A file that needs more rounds than SYNC_BYTES and
// SYNC_ROUNDS allow counts as damaged, and the CPU decides.
//
//     piece      0         |1         |2         |3
//     first      [----->   [----->    [----->    [----->      three places are guessed
//     then       [-----)   )-----)    )-----)    )-----)      each begins where the last one ended
//
// A file is whole if no code is unknown, no block has more than 64 coefficients, the number of
// blocks is that of the image, and less than a byte is left behind the last block.
#include "kernels/headers/common.cuh"

// A file of a batch: `FILE` of workers/engines/cuda/jpeg_blocks.py. It lies at `address`, often in
// memory of the host, which is slow to read, and this kernel copies it to `offset` of its memory.
struct JpegFile {
    u64 address, size, offset, whole;
};

// What a check needs of the header of a file.
struct JpegScan {
    u32 tables[4];  // where the tables DC 0, DC 1, AC 0 and AC 1 begin, or 0
    u32 start;      // where the entropy-coded data begin
    int blocks;     // of the image
    int per_unit;   // blocks of a minimum coded unit, at most 10
    u32 selectors;  // two bits for each block of a unit: its DC table, then its AC table
};

const int SOF0 = 0xC0, DHT = 0xC4, SOS = 0xDA;  // markers of segments
const int JPEG_THREADS = 512;                   // of the block that decodes a file
const int CODE_BITS = 9;                        // bits of a code that one look into a table decodes
const int LEAST_PIECE = 64;                     // bytes of a piece
const int SYNC_ROUNDS = 8;                      // rounds that any file may take
const int SYNC_BYTES = 1 << 16;  // bytes that one thread may decode if these are more rounds

struct HuffmanCodes {
    u16 direct[1 << CODE_BITS];  // length << 8 | symbol by the next bits, 0 if the code is longer
    u16 first[17], count[17], offset[17];
    u8 symbols[256];
};

// The bits of the data, without the 0 that an encoder writes behind each 0xFF.
struct JpegBits {
    const u8* data;
    u32 size, at;  // bytes in all, and the next byte to take
    u64 taken;     // the bits that were taken and not used, the next one highest
    int n;         // their number
    u32 stuffed;   // a bit for each byte that was taken, the last one lowest: a 0 followed it

    // Take bytes until there are more than 32 bits, which is more than a code and its value have,
    // or the data have ended.
    __device__ inline void fill()
    {
        if (n <= 32 && at + 4 <= size) {
            u32 word = __byte_perm(word_at(data + at), 0, 0x0123);
            if (((~word - 0x01010101) & word & 0x80808080) == 0) {  // no byte is 0xFF
                taken |= (u64)word << (32 - n);
                n += 32;
                at += 4;
                stuffed <<= 4;
            }
        }
        while (n <= 32 && at < size) {
            u32 byte = data[at++];
            u32 zero = byte == 0xFF && at < size && data[at] == 0;
            at += zero;
            stuffed = stuffed << 1 | zero;
            taken |= (u64)byte << (56 - n);
            n += 8;
        }
    }

    __device__ inline void drop(int bits)
    {
        taken <<= bits;
        n -= bits;
    }

    // Return the place in the data of the byte that the next bit belongs to.
    __device__ inline u32 byte() const
    {
        int bytes = (n + 7) / 8;
        return at - bytes - __popc(stuffed & ((1u << bytes) - 1));
    }
};

// A place between two codes: byte and bit, block of the unit, and the next coefficient.
__device__ inline u64 place_of(u32 byte, int bit, int block, int next)
{
    return (u64)byte << 32 | bit << 16 | block << 8 | next;
}

__device__ inline u32 longer_code(const HuffmanCodes& codes, u32 bits, int shortest, int longest)
{
    for (int length = shortest; length <= longest; length++) {
        u32 index = (bits >> (16 - length)) - codes.first[length];
        if (index < codes.count[length])
            return length << 8 | codes.symbols[codes.offset[length] + index];
    }
    return 0;
}

__device__ inline u32 big_endian(const u8* bytes) { return bytes[0] << 8 | bytes[1]; }

// Read the header of a file that models/codec/jpeg.py has accepted: a baseline JPEG with a single
// scan, whose first component has the finest sampling.
__device__ inline JpegScan find_scan(const u8* file, u32 size)
{
    JpegScan scan = {{0, 0, 0, 0}, size, 0, 0, 0};
    u32 samplings = 0;  // the blocks of each component in a unit, four bits each
    for (u32 at = 2; at + 4 < size;) {
        u32 marker = file[at + 1], body = at + 4;
        at += 2 + big_endian(file + at + 2);
        if (marker == DHT) {
            for (u32 table = body; table + 17 <= at;) {
                u32 name = file[table++], symbols = 0;
                scan.tables[(name >> 3 | name & 1) & 3] = table;
                for (int length = 0; length < 16; length++) symbols += file[table + length];
                table += 16 + symbols;
            }
        } else if (marker == SOF0) {
            int components = file[body + 5], first = file[body + 7];
            int wide = components == 1 ? 8 : 8 * (first >> 4);
            int high = components == 1 ? 8 : 8 * (first & 15);
            for (int i = 0; i < components; i++) {
                u32 sampling = file[body + 7 + 3 * i];
                int blocks = components == 1 ? 1 : (sampling >> 4) * (sampling & 15);
                samplings |= blocks << 4 * i;
                scan.per_unit += blocks;
            }
            int height = big_endian(file + body + 1), width = big_endian(file + body + 3);
            scan.blocks = (width + wide - 1) / wide * ((height + high - 1) / high) * scan.per_unit;
        } else if (marker == SOS) {
            int block = 0;
            for (int i = 0; i < file[body]; i++) {
                u32 names = file[body + 2 + 2 * i];
                for (u32 n = samplings >> 4 * i & 15; n > 0; n--, block++)
                    scan.selectors |= (names >> 4 & 1 | (names & 1) << 1) << 2 * block;
            }
            scan.start = at;
            break;
        }
    }
    return scan;
}

// Make the four tables of a file; every thread of the block has to call it.
__device__ inline void make_codes(HuffmanCodes* codes, const JpegScan& scan, const u8* file)
{
    if (threadIdx.x < 4) {
        HuffmanCodes& own = codes[threadIdx.x];
        u32 code = 0, offset = 0, table = scan.tables[threadIdx.x];
        for (int length = 1; length <= 16; length++) {
            u32 count = table ? file[table + length - 1] : 0;
            own.first[length] = code, own.count[length] = count, own.offset[length] = offset;
            offset += count;
            code = (code + count) << 1;
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 4 * 256; i += JPEG_THREADS) {
        HuffmanCodes& own = codes[i / 256];
        if (i % 256 < own.offset[16] + own.count[16])
            own.symbols[i % 256] = file[scan.tables[i / 256] + 16 + i % 256];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 4 << CODE_BITS; i += JPEG_THREADS) {
        HuffmanCodes& own = codes[i >> CODE_BITS];
        u32 bits = i & ((1 << CODE_BITS) - 1);
        own.direct[bits] = longer_code(own, bits << (16 - CODE_BITS), 1, CODE_BITS);
    }
    __syncthreads();
}

// `whole` of each file becomes 1 or 0. The files begin and are copied in whole vectors of 16 bytes.
extern "C" __global__ void __launch_bounds__(JPEG_THREADS)
    count_jpeg_blocks(JpegFile* files, u8* memory)
{
    __shared__ JpegFile given;
    __shared__ HuffmanCodes codes[4];
    __shared__ u64 ends[JPEG_THREADS];
    __shared__ int total;
    __shared__ JpegScan scan;
    if (threadIdx.x == 0) given = files[blockIdx.x];
    __syncthreads();
    u8* file = memory + given.offset;
    for (u32 i = threadIdx.x; i < (given.size + 15) / 16; i += JPEG_THREADS)
        ((uint4*)file)[i] = ((const uint4*)given.address)[i];
    __syncthreads();
    u32 last = given.size - 2;  // where the EOI begins
    if (threadIdx.x == 0) scan = find_scan(file, last);
    __syncthreads();
    make_codes(codes, scan, file);
    const u8* data = file + scan.start;
    u32 size = last - scan.start,
        piece = max(LEAST_PIECE, (int)((size + JPEG_THREADS - 1) / JPEG_THREADS));
    u32 byte = min(threadIdx.x * piece, size), end = min(byte + piece, size);
    if (byte > 0 && byte < size && data[byte] == 0 && data[byte - 1] == 0xFF) byte++;
    u64 start = place_of(byte, 0, 0, 0);
    int blocks = 0, rest = 0;
    bool wrong = false, again = true, changed = true;
    int rounds = min(JPEG_THREADS, max(SYNC_ROUNDS, (int)(SYNC_BYTES / piece)));
    for (int round = 0; round < rounds && changed; round++) {
        if (again) {
            JpegBits bits = {data, size, (u32)(start >> 32), 0, 0, 0};
            int block = start >> 8 & 255, next = start & 255;
            bits.fill();
            bits.drop(start >> 16 & 255);
            blocks = 0;
            wrong = false;
            for (;;) {
                bits.fill();
                if (bits.at >= end && bits.byte() >= end) break;
                u32 selector = scan.selectors >> 2 * block;
                const HuffmanCodes& own = codes[next ? 2 + (selector >> 1 & 1) : selector & 1];
                u32 peeked = bits.taken >> 48;
                u32 code = own.direct[peeked >> (16 - CODE_BITS)];
                if (!code) code = longer_code(own, peeked, CODE_BITS + 1, 16);
                int length = code >> 8, symbol = code & 255;
                if (bits.n < (code ? length + (symbol & 15) : 16)) break;  // the data have ended
                if (!code) {
                    wrong = true;
                    bits.drop(1);
                    next = 0;
                    continue;
                }
                bits.drop(length + (symbol & 15));
                if (next == 0) next = 1;
                else next = symbol ? next + (symbol >> 4) + 1 : 64;
                if (next < 64) continue;
                wrong |= next > 64;
                next = 0;
                blocks++;
                if (++block == scan.per_unit) block = 0;
            }
            rest = bits.at < size ? 8 : bits.n;
            ends[threadIdx.x] = place_of(bits.byte(), -bits.n & 7, block, next);
        }
        __syncthreads();
        u64 before = threadIdx.x ? ends[threadIdx.x - 1] : start;
        again = before != start;
        start = before;
        changed = __syncthreads_or(again);
    }
    if (threadIdx.x == 0) total = 0;
    wrong = __syncthreads_or(wrong);
    atomicAdd(&total, blocks);
    __syncthreads();
    if (threadIdx.x == JPEG_THREADS - 1) {
        bool between = (ends[threadIdx.x] & 0xFFFF) == 0;
        files[blockIdx.x].whole = !wrong && !changed && between && rest < 8 && total == scan.blocks;
    }
}
