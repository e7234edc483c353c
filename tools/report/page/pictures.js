// SPDX-License-Identifier: MIT
/*
 * Pictures over time: charts, and the map of addresses. They show the same part of the time, of one
 * process and GPU or of all, which a reader selects.
 *
 * A picture has labels on the left, a drawing that is WIDE units wide and stretched to the page,
 * and marks of the time. `draw` fills the drawing, and `read` returns what is under the pointer.
 */
const WIDE = 1000;

/* What is shown: parts of the whole time, an index in the report's processes, a GPU. */
const view = {from: 0, to: 1, process: 'all', device: 'all'};
const pictures = [];
let overTime, span;

function isShown(process, device) {
	return (view.process === 'all' || view.process === process) &&
		(view.device === 'all' || view.device === device);
}

function key(kind, text) {
	return element('span', null, element('i.key.' + kind), text);
}

const keyOfPinned = () => key('p', 'pinned'), keyOfKept = () => key('k', 'freed, but still pinned');

function addPicture(title, note, drawer, height = 130, kind = '') {
	const svg = element('svg', {role: 'img', 'aria-label': title + ' over time',
		preserveAspectRatio: 'none', style: `height:${height}px`});
	const marks = element('div.xs'), readout = element('div.readout');
	const plot = element('div.plot' + kind, null, svg, marks, readout);

	for (let i = 0; i <= 5; i++)
		marks.append(element('span', {style: `left:${20 * i}%`}));
	pictures.push(Object.assign(drawer, {svg, marks, readout, plot, height}));
	return element('div.picture', null, element('h2', null, title),
		element('p.dim.keys', null, ...note), plot);
}

function addPath(picture, kind, line) {
	picture.svg.append(element('path.' + kind, {d: line}));
}

function addLabel(picture, y, text) {
	picture.plot.append(element('span.y', {style: `top:${y.toFixed(1)}px`}, text));
}

/* ---- charts ---------------------------------------------------------------------------------- */

function columnAt(part) {
	return Math.min(overTime.columns - 1, Math.floor(part * overTime.columns));
}

/* The value of each column, of a series as pairs of column and value. */
function expand(series = []) {
	const values = [];

	for (let column = 0, i = 0; column < overTime.columns; column++) {
		if (series[i] === column)
			i += 2;
		values.push(i ? series[i - 1] : 0);
	}
	return values;
}

function seriesOf(name) {
	const found = overTime.views.find(one => one.process === view.process &&
		one.device === view.device);

	return expand(found && found[name]);
}

/* Those that the traces have of a process, or of all. */
function devicesOf(process) {
	return overTime.views.filter(one => one.process === process && one.device !== 'all')
		.map(one => one.device).sort((a, b) => a - b);
}

/* Steps, one for each part of the time. */
function areaOf(values, most, height) {
	let line = `M0 ${height}`;

	values.forEach((value, i) => {
		if (!i || value !== values[i - 1])
			line += `H${(WIDE * i / values.length).toFixed(2)}` +
				`V${(height - (most ? value / most * height : 0)).toFixed(1)}`;
	});
	return line + `H${WIDE}V${height}Z`;
}

function highest(list) {
	return list.reduce((most, values) => Math.max(most, ...values), 0);
}

/*
 * The capacity is part of the scale where at least a twentieth of it is used. Otherwise the chart
 * would be flat, and the line is drawn at its upper edge.
 */
function fitsScale(capacity, peak) {
	return peak >= capacity / 20;
}

/* `get` gives the series, one or two, whose values have labels; `capacity` is that of one GPU. */
function chart(get, labels, text = bytesText, capacity = 0) {
	return {
		draw() {
			const first = Math.floor(view.from * overTime.columns);
			const last = Math.ceil(view.to * overTime.columns);
			const line = capacity * Math.max(1, view.device === 'all' ?
				devicesOf(view.process).length : 1);
			let most;

			this.values = get();
			most = highest(this.values.map(values => values.slice(first, last)));
			const fits = fitsScale(line, most);

			most = fits ? Math.max(most, line) : most;
			addPath(this, 'grid', `M0 ${this.height / 2}H${WIDE}`);
			this.values.forEach((values, i) => addPath(this, ['one', 'two'][i],
				areaOf(values, most, this.height)));
			if (line)
				addPath(this, 'capacity', 'M0 ' + (fits ?
					this.height * (1 - line / most) + 1 : 1) + `H${WIDE}`);
			addLabel(this, 0, text(most));
			addLabel(this, this.height / 2, most > 1 ? text(Math.floor(most / 2)) : '');
			addLabel(this, this.height, '0');
		},
		read(part) {
			const column = columnAt(part);

			return ': ' + this.values.map((values, i) =>
				`${text(values[column])} ${labels[i]}`).join(', ');
		}
	};
}

function capacityNote(capacity) {
	const all = capacity * Math.max(1, devicesOf('all').length);
	const peak = highest([seriesOf('bar_bytes')]);

	if (!capacity)
		return [' Its capacity is not in the traces; pindown run adds it if all GPUs ' +
			'have the same.'];
	return [' ', key('c', 'capacity: ' + bytesText(all)), element('span', null,
		`used at the peak: ${Number((100 * peak / all).toPrecision(2))} %` +
		(fitsScale(all, peak) ? '' : '; the line is above the scale'))];
}

/* ---- drawing, and what a reader does --------------------------------------------------------- */

const buttons = {};

function drawPicture(picture) {
	const width = view.to - view.from;

	picture.plot.querySelectorAll('.y').forEach(label => label.remove());
	picture.svg.replaceChildren();
	picture.svg.setAttribute('viewBox',
		`${WIDE * view.from} 0 ${WIDE * width} ${picture.height}`);
	Array.from(picture.marks.children).forEach((mark, i) => {
		const ns = span * (view.from + width * i / 5);

		mark.textContent = ns ? markText(ns, span * width / 5) : '0';
	});
	picture.draw();
}

function draw() {
	const whole = view.from <= 0 && view.to >= 1;

	pictures.forEach(drawPicture);
	buttons.out.disabled = buttons.all.disabled = whole;
	buttons.left.disabled = view.from <= 0;
	buttons.right.disabled = view.to >= 1;
	buttons.in.disabled = view.to - view.from < 4.5 / overTime.columns;
}

/* At least four columns, inside the whole time. */
function zoom(from, to) {
	const width = Math.min(1, Math.max(to - from, 4 / overTime.columns));
	const begin = Math.min(1 - width, Math.max(0, (from + to - width) / 2));

	view.from = begin;
	view.to = begin + width;
	draw();
}

/* By parts of what is shown. */
function move(from, to) {
	const width = view.to - view.from;

	zoom(view.from + width * from, view.to + width * to);
}

function button(name, label, title, act) {
	const made = element('button', {type: 'button', title, 'aria-label': title}, label);

	made.onclick = act;
	buttons[name] = made;
	return made;
}

function choice(title, member, options) {
	const made = element('select', {title, 'aria-label': title},
		...options.map(([, text], i) => element('option', {value: i}, text)));

	made.onchange = () => {
		view[member] = options[made.value][0];
		draw();
	};
	return options.length > 2 ? [made] : []; /* all, and one */
}

function toolsFor(processes) {
	const viewed = processes.map((one, i) => [i, processText(one)])
		.filter(([i]) => devicesOf(i).length);
	const devices = devicesOf('all').map(device =>
		[device, device === null ? 'unknown GPU' : `GPU ${device}`]);

	return element('div.tools', null,
		...choice('GPU', 'device', [['all', 'all GPUs'], ...devices]),
		...choice('process', 'process', [['all', 'all processes'], ...viewed]),
		button('in', '+', 'zoom in', () => move(1 / 4, -1 / 4)),
		button('out', '−', 'zoom out', () => move(-1 / 2, 1 / 2)),
		button('left', '◀', 'earlier', () => move(-1 / 2, -1 / 2)),
		button('right', '▶', 'later', () => move(1 / 2, 1 / 2)),
		button('all', 'whole time', 'whole time', () => zoom(0, 1)),
		element('small', null, 'Drag over a chart to zoom.' + (viewed.length < 32 ||
			processes.length === viewed.length ? '' :
			' Only the first 32 processes have charts of their own.')));
}

/* What is under the pointer is read out; dragging selects the time to show. */
function followPointer(picture) {
	const {plot, svg, readout, height} = picture;
	const cursor = element('div.cursor', {style: `height:${height}px`});
	const pick = element('div.pick', {style: `height:${height}px`});
	let begin = null;

	function at(event) {
		const box = svg.getBoundingClientRect();

		return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
	}
	function place(mark, from, to) {
		const box = svg.getBoundingClientRect();

		mark.style.left = `${box.left - plot.getBoundingClientRect().left +
			from * box.width}px`;
		mark.style.width = `${(to - from) * box.width}px`;
		mark.style.display = '';
	}
	function leave() {
		cursor.style.display = pick.style.display = 'none';
		readout.textContent = '';
		begin = null;
	}
	function read(part, y) {
		const column = columnAt(part), each = span / overTime.columns;

		readout.textContent = `${markText(each * column, each)} to ` +
			markText(each * (column + 1), each) + picture.read(part, y);
	}

	plot.append(cursor, pick);
	leave();
	svg.onpointerdown = event => {
		if (event.button)
			return;
		begin = at(event);
		svg.setPointerCapture(event.pointerId);
		event.preventDefault();
	};
	svg.onpointermove = event => {
		const here = at(event);

		place(cursor, here, here);
		if (begin !== null)
			place(pick, Math.min(begin, here), Math.max(begin, here));
		read(view.from + (view.to - view.from) * here,
			event.clientY - svg.getBoundingClientRect().top);
	};
	svg.onpointerup = event => {
		const here = at(event), from = begin;

		leave();
		if (from !== null && Math.abs(here - from) > .01)
			move(Math.min(from, here), Math.max(from, here) - 1);
	};
	svg.onpointerleave = () => begin === null && leave();
	svg.onpointercancel = leave;
}

function addCharts({cache, allocated, bar1_bytes: capacity}) {
	const list = [];

	if (cache.pins)
		list.push(addPicture('Pinned bytes', [keyOfPinned(), keyOfKept()],
			chart(() => [seriesOf('pinned_bytes'), seriesOf('kept_bytes')],
				['pinned', 'freed but still pinned'])),
		addPicture('Live regions', ['Number of registrations in the cache.'],
			chart(() => [seriesOf('regions')], ['regions'], countText)),
		addPicture('BAR use', ['BAR1 space that the pins take, in whole pages of 64 KiB.',
			...capacityNote(capacity)],
		chart(() => [seriesOf('bar_bytes')], ['of BAR1'], bytesText, capacity || 0)));
	if (allocated.peak_bytes)
		list.push(addPicture('Allocated bytes', ['Memory that the program has allocated ' +
			`or mapped, pinned or not: up to ${bytesText(allocated.peak_bytes)}, ` +
			`at ${durationText(allocated.peak_at_ns)}.`],
		chart(() => [expand(overTime.allocated_bytes)], ['allocated'])));
	return list;
}

function addMap({regions, regions_cut: cut}) {
	if (!regions.length)
		return [];
	return [addPicture('Addresses over time', [keyOfPinned(), keyOfKept(),
		'Each box is a region. Long gaps between addresses are left out.',
		cut ? ` Only the first ${countText(regions.length)} regions are shown.` : ''],
	map(regions), MAP.height, '.map')];
}

function showPictures(report) {
	const list = [...addCharts(report), ...addMap(overTime)];

	if (!list.length)
		return;
	show(element('div', {id: 'pictures'}, toolsFor(report.processes), ...list));
	pictures.forEach(followPointer);
	draw();
}
