// SPDX-License-Identifier: MIT
/*
 * The map of addresses, a picture. Each region is a box: its width is the time it was pinned, its
 * height its size. Long gaps between addresses are left out.
 */

const MAP = {height: 304, top: 2, gap: 6, least: 8, strips: 24};

function regionOf([addr, size, process, device, from, to, freed]) {
	const begin = Number(addr);

	return {addr, size, process, device, from, to, freed: freed === null ? to : freed, begin,
		end: begin + size};
}

/* Ranges of addresses without gaps longer than `gap`; the regions are sorted. */
function divide(regions, gap) {
	const strips = [];

	regions.forEach(region => {
		const last = strips[strips.length - 1];

		if (last && region.begin - last.end <= gap)
			last.end = Math.max(last.end, region.end);
		else
			strips.push({addr: region.addr, begin: region.begin, end: region.end});
	});
	return strips;
}

/*
 * With the smallest gap that makes few of them. Each gets a least height and a share of the rest by
 * its size.
 */
function stripsOf(regions) {
	const sorted = [...regions].sort((a, b) => a.begin - b.begin);
	let gap = 2 ** 26, strips, y = MAP.top;

	while ((strips = divide(sorted, gap)).length > MAP.strips)
		gap *= 4;
	const total = strips.reduce((sum, strip) => sum + strip.end - strip.begin, 0);
	const free = MAP.height - 2 * MAP.top - MAP.gap * (strips.length - 1) -
		MAP.least * strips.length;

	strips.forEach(strip => {
		strip.y = y;
		strip.height = MAP.least + (total ? free * (strip.end - strip.begin) / total : 0);
		y += strip.height + MAP.gap;
	});
	return strips;
}

function yOf(strips, at) {
	let strip = strips[0];

	strips.forEach(next => { strip = next.begin <= at ? next : strip; });
	return strip.y + strip.height *
		Math.min(1, (at - strip.begin) / Math.max(1, strip.end - strip.begin));
}

function drawStrips(picture, strips) {
	let free = 0;

	strips.forEach((strip, i) => {
		if (i)
			addPath(picture, 'grid', `M0 ${strip.y - MAP.gap / 2}H${WIDE}`);
		if (strip.y + 7 < free) /* it would overlap the one before */
			return;
		addLabel(picture, strip.y + 7, strip.addr);
		free = strip.y + 7 + 14;
	});
}

function boxOf(region, from, to, pixel) {
	const x = WIDE * from / span, width = Math.max(pixel, WIDE * (to - from) / span);

	return `M${x.toFixed(2)} ${region.y.toFixed(1)}h${width.toFixed(2)}` +
		`v${region.height.toFixed(1)}h-${width.toFixed(2)}z`;
}

function drawRegions(picture, regions) {
	const pixel = view.to - view.from; /* of a thousand */
	let pinned = '', kept = '';

	picture.shown = regions.filter(region => isShown(region.process, region.device) &&
		region.to >= span * view.from && region.from <= span * view.to);
	picture.shown.forEach(region => {
		pinned += boxOf(region, region.from, region.freed, pixel);
		if (region.freed < region.to)
			kept += boxOf(region, region.freed, region.to, 2 * pixel);
	});
	/* Lines around many boxes would hide them. */
	addPath(picture, picture.shown.length > 3000 ? 'p' : 'p.b', pinned);
	addPath(picture, picture.shown.length > 3000 ? 'k' : 'k.b', kept);
}

function regionText(region) {
	const {addr, size: bytes, from, to, freed} = region;

	return `: ${addr}, ${bytesText(bytes)}, pinned from ${durationText(from)}` +
		(freed < to ? `, freed at ${durationText(freed)} and kept` : '') +
		` until ${durationText(to)}`;
}

function map(rows) {
	const regions = rows.map(regionOf), strips = stripsOf(regions);

	regions.forEach(region => {
		const last = yOf(strips, region.end - (region.size ? 1 : 0));

		region.y = yOf(strips, region.begin);
		region.height = Math.max(1, last - region.y);
	});
	return {
		draw() {
			drawStrips(this, strips);
			drawRegions(this, regions);
		},
		read(part, y) {
			const ns = span * part, near = span * (view.to - view.from) / 500;
			const under = this.shown.filter(region => y >= region.y &&
				y <= region.y + region.height && ns >= region.from &&
				ns <= Math.max(region.to, region.from + near)).pop();

			return under ? regionText(under) : '';
		}
	};
}
