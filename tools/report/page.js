// SPDX-License-Identifier: MIT
/* The script of the pages: sorts tables, selects and zooms charts. The page is complete without. */
'use strict';
document.querySelectorAll('th').forEach(function(head){
	head.tabIndex=0;head.title='sort by this column';
	function sort(){
		var table=head.closest('table'),body=table.tBodies[0],i=head.cellIndex,
			down=head.dataset.order?head.dataset.order==='up':head.classList.contains('n');
		table.querySelectorAll('th').forEach(function(h){delete h.dataset.order});
		head.dataset.order=down?'down':'up';
		Array.from(body.rows).map(function(row){
			var c=row.cells[i],v=c.dataset.v;
			return{row:row,key:v!==undefined?Number(v):c.textContent}
		}).sort(function(a,b){
			var d=typeof a.key==='number'?a.key-b.key:a.key.localeCompare(b.key);
			return down?-d:d
		}).forEach(function(x){body.appendChild(x.row)})
	}
	head.onclick=sort;
	head.onkeydown=function(e){if(e.key==='Enter')sort()}
});
function bytes(v){
	var u=['B','KiB','MiB','GiB','TiB','PiB'],i=0,d;
	while(v>=1024&&i<5){v/=1024;i++}
	d=v%1===0||v>=100?0:v>=10?1:2;
	return(Math.floor(v*Math.pow(10,d))/Math.pow(10,d)).toFixed(d)+' '+u[i]
}
function time(v,step){
	var u=v<1e4?0:v<1e6?1:v<1e9?2:3,unit=Math.pow(1e3,u);
	return(v/unit).toFixed(u?Math.max(u>1?2:1,Math.ceil(Math.log10(unit/step))+1):0)+' '+
		['ns','\u00b5s','ms','s'][u]
}
(function(){
	var box=document.getElementById('pictures'),data=document.getElementById('views');
	if(!box||!data)return;
	data=JSON.parse(data.textContent);
	var EVERY=-2,N=data.columns,file=EVERY,device=EVERY,from=0,to=1,tools,buttons={};
	function series(list){
		var all=[],v=0,j=0;
		for(var i=0;i<N;i++){if(list[j]===i){v=list[j+1];j+=2}all.push(v)}
		return all
	}
	function devicesOf(f){
		return data.views.filter(function(v){return v.f===f&&v.d!==EVERY})
			.map(function(v){return v.d}).sort(function(a,b){return a-b})
	}
	function chosen(){
		var v=data.views.filter(function(v){return v.f===file&&v.d===device})[0];
		return v?v.s.map(series):[0,1,2,3].map(function(){return series([])})
	}
	var plots=Array.from(box.querySelectorAll('.plot')).map(function(plot){
		return{plot:plot,svg:plot.querySelector('svg'),chart:plot.dataset.chart?
			JSON.parse(plot.dataset.chart):null,out:plot.querySelector('.readout'),
			height:Number(plot.querySelector('svg').getAttribute('viewBox').split(' ')[3])}
	});
	function text(chart,v){return chart.count?String(v):bytes(v)}
	function area(values,max,height){
		var d='M0 '+height;
		values.forEach(function(v,i){
			if(!i||v!==values[i-1])d+='H'+(1000*i/N).toFixed(2)+'V'+(height-(
max?v/max*height:0)).toFixed(1)
		});
		return d+'H1000V'+height+'Z'
	}
	function drawChart(p,s){
		var c=p.chart,first=Math.floor(from*N),last=Math.ceil(to*N),peak=0,max,capacity,
labels,line;
		p.values=c.series.filter(function(k){return k>=0}).map(function(k){return s[k]});
		p.values.forEach(function(v){peak=Math.max.apply(null,[peak].concat(v.slice(first,
last)))});
		capacity=c.capacity*(device===EVERY?Math.max(1,devicesOf(file).length):1);
		max=capacity&&peak>=capacity/20?Math.max(peak,capacity):peak;
		['one','two'].forEach(function(name,i){
			var path=p.svg.querySelector('.'+name);
			if(path)path.setAttribute('d',area(p.values[i],max,c.height))
		});
		line=p.svg.querySelector('.capacity');
		if(line)line.setAttribute('d','M0 '+(peak>=capacity/20?
			c.height*(1-capacity/max)+1:1)+'H1000');
		labels=p.plot.querySelectorAll('.y');
		labels[0].textContent=text(c,max);
		labels[1].textContent=max>1?text(c,Math.floor(max/2)):''
	}
	function draw(){
		var s=chosen();
		plots.forEach(function(p){
			p.svg.setAttribute('viewBox',1000*from+' 0 '+1000*(to-from)+' '+p.height);
			p.plot.querySelectorAll('.xs span').forEach(function(x,i){
				var ns=data.span*(from+(to-from)*i/5);
				x.textContent=ns?time(ns,data.span*(to-from)/5):'0'
			});
			if(p.chart)drawChart(p,s);
			else p.svg.querySelectorAll('rect[data-f]').forEach(function(r){
				var shown=(file===EVERY||Number(r.dataset.f)===file)&&
					(device===EVERY||Number(r.dataset.d)===device);
				r.style.display=shown?'':'none'
			})
		});
		buttons.out.disabled=buttons.all.disabled=from<=0&&to>=1;
		buttons.left.disabled=from<=0;buttons.right.disabled=to>=1;
		buttons.in.disabled=to-from<=4/N
	}
	function zoom(a,b){
		if(b-a<4/N){var m=(a+b)/2;a=m-2/N;b=m+2/N}
		if(a<0){b=Math.min(1,b-a);a=0}
		if(b>1){a=Math.max(0,a-b+1);b=1}
		from=a;to=b;draw()
	}
	function button(name,label,title,act){
		var b=document.createElement('button');
		b.type='button';b.textContent=label;b.title=title;b.setAttribute('aria-label',
title);
		b.onclick=act;buttons[name]=b;tools.appendChild(b)
	}
	function choice(title,all,options,act){
		var s=document.createElement('select');
		s.setAttribute('aria-label',title);s.title=title;
		[[EVERY,all]].concat(options).forEach(function(o){
			var option=document.createElement('option');
			option.value=o[0];option.textContent=o[1];s.appendChild(option)
		});
		s.onchange=function(){act(Number(s.value));draw()};
		if(options.length>1)tools.appendChild(s)
	}
	tools=document.createElement('div');tools.className='tools';
	choice('GPU','all GPUs',devicesOf(EVERY).map(function(d){
		return[d,d<0?'unknown GPU':'GPU '+d]}),function(v){device=v});
	choice('process','all processes',Object.keys(data.files).map(function(f){
		return[f,data.files[f]]}),function(v){file=v});
	button('in','+','zoom in',function(){var w=(to-from)/4;zoom(from+w,to-w)});
	button('out','\u2212','zoom out',function(){var w=(to-from)/2;zoom(from-w,to+w)});
	button('left','\u25c0','earlier',function(){var w=(to-from)/2;zoom(from-w,to-w)});
	button('right','\u25b6','later',function(){var w=(to-from)/2;zoom(from+w,to+w)});
	button('all','whole time','whole time',function(){zoom(0,1)});
	var hint=document.createElement('small');
	hint.textContent='Drag over a chart to zoom.'+(data.more&&Object.keys(
data.files).length>=32?
		' Only the first 32 processes have charts of their own.':'');
	tools.appendChild(hint);
	box.insertBefore(tools,box.firstChild);
	plots.forEach(function(p){
		var cursor=document.createElement('div'),pick=document.createElement('div'),
begin=null;
		cursor.className='cursor';pick.className='pick';
		cursor.style.display=pick.style.display='none';
		cursor.style.height=pick.style.height=p.height+'px';
		p.plot.appendChild(cursor);p.plot.appendChild(pick);
		function at(e){
			var r=p.svg.getBoundingClientRect();
			return Math.min(1,Math.max(0,(e.clientX-r.left)/r.width))
		}
		function x(part){
			var r=p.svg.getBoundingClientRect(),q=p.plot.getBoundingClientRect();
			return r.left-q.left+part*r.width
		}
		function leave(){cursor.style.display=pick.style.display='none';
p.out.textContent='';begin=null}
		p.svg.onpointerdown=function(e){
			if(e.button)return;
			begin=at(e);p.svg.setPointerCapture(e.pointerId);e.preventDefault()
		};
		p.svg.onpointermove=function(e){
			var here=at(e),i=Math.min(N-1,Math.floor((from+(to-from)*here)*N));
			cursor.style.display='';cursor.style.left=x(here)+'px';
			if(begin!==null){
				pick.style.display='';pick.style.left=x(Math.min(begin,here))+'px';
				pick.style.width=Math.abs(here-begin)*p.svg.getBoundingClientRect().width+'px'
			}
			p.out.textContent=time(data.span*i/N,data.span/N)+' to '+
				time(data.span*(i+1)/N,data.span/N)+
				(p.chart?': '+p.values.map(function(v,j){
					return text(p.chart,v[i])+' '+p.chart.labels[j]}).join(', '):'')
		};
		p.svg.onpointerup=function(e){
			var here=at(e),w=to-from,a=begin;
			leave();
			if(a!==null&&Math.abs(here-a)>.01)zoom(from+w*Math.min(a,here),from+w*Math.max(a,
here))
		};
		p.svg.onpointerleave=function(){if(begin===null)leave()};
		p.svg.onpointercancel=leave
	});
	draw()
})();
